// Package passwd has the command that writes a line of --auth-file.
package passwd

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	"golang.org/x/crypto/bcrypt"
	"golang.org/x/term"

	"github.com/coe-bridge/coe-bridge/restconf/access"
)

// New returns the command passwd.
func New() *cobra.Command {
	var role, algorithm string
	cmd := &cobra.Command{
		Use:   "passwd USER",
		Short: "Print a line for --auth-file: a user, a role and the hash of a password",
		Long: `passwd reads a password (from the terminal without echo, or one line of standard
input) and prints the line that --auth-file of coe-bridge serve takes.

A writer may read and change everything. A reader may read everything. The file has one
line for each user; a second line of the same user is an error.`,
		Example: `  # a new file with one user
  coe-bridge passwd admin > /etc/coe-bridge/users

  # the line of another user, to add to that file
  coe-bridge passwd --role reader robot

  # a password that nobody has to type
  head -c 18 /dev/urandom | base64 | tee secret | coe-bridge passwd --role reader robot`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("passwd: want one USER, the name that the password is for")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			line, err := passwdLine(cmd, args[0], role, algorithm)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), line)
			return err
		},
	}
	cmd.Flags().StringVar(&role, "role", access.Writer.String(), "role of the user: reader or writer")
	cmd.Flags().StringVar(&algorithm, "hash", access.Bcrypt, "bcrypt (passwords of up to 72 bytes), or argon2id (harder to guess; needs 19 MiB for each login)")
	for name, values := range map[string][]string{
		"role": {access.Reader.String(), access.Writer.String()}, "hash": {access.Bcrypt, access.Argon2id},
	} {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	return cmd
}

// passwdLine asks for a password, after all other input has been checked.
func passwdLine(cmd *cobra.Command, user, role, algorithm string) (string, error) {
	if user == "" || user[0] == '#' || strings.ContainsFunc(user, isNoNameRune) {
		return "", fmt.Errorf("user %q: want a name without colon, blank and # at its beginning", user)
	}
	if _, err := access.ParseRole(role); err != nil {
		return "", fmt.Errorf("--role: %w", err)
	}
	if algorithm != access.Bcrypt && algorithm != access.Argon2id {
		return "", fmt.Errorf("--hash %q: want %s or %s", algorithm, access.Bcrypt, access.Argon2id)
	}
	password, err := readPassword(cmd)
	if err != nil {
		return "", err
	}
	hash, err := access.HashPassword(password, algorithm)
	if errors.Is(err, bcrypt.ErrPasswordTooLong) {
		return "", fmt.Errorf("%w; take a shorter one, or --hash %s", err, access.Argon2id)
	}
	if err != nil {
		return "", err
	}
	return user + ":" + role + ":" + hash, nil
}

// isNoNameRune reports what would end a user's name in a line of the file.
func isNoNameRune(r rune) bool { return r == ':' || unicode.IsSpace(r) || unicode.IsControl(r) }

func readPassword(cmd *cobra.Command) (string, error) {
	if in, ok := cmd.InOrStdin().(*os.File); ok && term.IsTerminal(int(in.Fd())) {
		return askPassword(cmd, in)
	}
	line, err := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("read password: %w", err)
	}
	return nonEmpty(strings.TrimRight(line, "\r\n"))
}

func askPassword(cmd *cobra.Command, in *os.File) (string, error) {
	ask := func(prompt string) (string, error) {
		fmt.Fprint(cmd.ErrOrStderr(), prompt)
		text, err := term.ReadPassword(int(in.Fd()))
		fmt.Fprintln(cmd.ErrOrStderr())
		return string(text), err
	}
	first, err := ask("Password: ")
	if err != nil {
		return "", fmt.Errorf("read password: %w", err)
	}
	second, err := ask("Again: ")
	if err != nil {
		return "", fmt.Errorf("read password: %w", err)
	}
	if first != second {
		return "", errors.New("read password: the two are not the same")
	}
	return nonEmpty(first)
}

func nonEmpty(password string) (string, error) {
	if password == "" {
		return "", errors.New("read password: it is empty; type one, or send one line on standard input")
	}
	return password, nil
}
