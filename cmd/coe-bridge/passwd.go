package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/coe-bridge/coe-bridge/restconf"
)

func newPasswd() *cobra.Command {
	return &cobra.Command{
		Use:   "passwd USER",
		Short: "Write a line for --auth-file: a user and the bcrypt hash of a password",
		Long: `passwd reads a password (from the terminal without echo, or one line of standard
input) and prints the line that --auth-file of coe-bridge serve takes.`,
		Example: `  coe-bridge passwd admin >> /etc/coe-bridge/users
  head -c 18 /dev/urandom | base64 | tee secret | coe-bridge passwd robot >> users`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("passwd: want one USER, the name that the password is for")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			user := args[0]
			if user == "" || user[0] == '#' || strings.ContainsFunc(user, isNoNameRune) {
				return fmt.Errorf("user %q: want a name without colon, blank and # at its beginning", user)
			}
			password, err := readPassword(cmd)
			if err != nil {
				return err
			}
			hash, err := restconf.HashPassword(password)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s:%s\n", user, hash)
			return err
		},
	}
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
