package flags

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/coe-bridge/coe-bridge/files"
	"github.com/coe-bridge/coe-bridge/restconf/client"
)

// Bridge has the flags that say how a running bridge is reached.
type Bridge struct {
	server, user, passwordFile string
	tls                        TLS
	timeout                    time.Duration
}

// Register adds the flags to a command.
func (f *Bridge) Register(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&f.server, "server", "s", "http://127.0.0.1:8181", "URL of the bridge")
	cmd.Flags().StringVarP(&f.user, "user", "u", "admin", "user; the password comes from COE_BRIDGE_PASSWORD or --password-file")
	cmd.Flags().StringVar(&f.passwordFile, "password-file", "", "file whose first line is the password")
	FileVar(cmd.Flags(), &f.tls.CA, "ca-file", "PEM file with the CA of the bridge's certificate; default: the system's CAs")
	FileVar(cmd.Flags(), &f.tls.Cert, "cert", "PEM file of a client certificate (with --key)")
	FileVar(cmd.Flags(), &f.tls.Key, "key", "PEM file of the client certificate's key")
	cmd.Flags().DurationVar(&f.timeout, "timeout", 10*time.Second, "timeout of a request")
}

// Client returns a client with these settings.
func (f *Bridge) Client() (*client.Client, error) {
	server := strings.TrimRight(f.server, "/")
	if !strings.HasPrefix(server, "http://") && !strings.HasPrefix(server, "https://") {
		return nil, fmt.Errorf("--server %q: want a URL like http://127.0.0.1:8181", f.server)
	}
	tls, err := f.tls.Client(ReadOnce())
	if err != nil {
		return nil, err
	}
	password, err := f.password()
	if err != nil {
		return nil, err
	}
	return client.New(client.Config{Server: server, User: f.user, Password: password, TLS: tls.Config(), Shows: f.tls.Cert.Path != "", Timeout: f.timeout}), nil
}

// Streaming returns a client whose answers may last.
func (f Bridge) Streaming() (*client.Client, error) {
	f.timeout = 0
	return f.Client()
}

func (f *Bridge) password() (string, error) {
	if f.passwordFile == "" {
		return os.Getenv(envName("password")), nil
	}
	text, err := os.ReadFile(f.passwordFile)
	if err != nil {
		return "", fmt.Errorf("read --password-file: %w", err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimRight(line, "\r"), nil
}

// CompletionFlags returns the values of the flags of a command that is being completed,
// from the environment and the file of settings too. Requests end after the timeout.
func CompletionFlags(cmd *cobra.Command, timeout time.Duration) *Bridge {
	file, _ := cmd.Flags().GetString("config")
	_ = ApplySettings(cmd, file) // an error is reported when the command is run
	text := func(name string) string {
		value, _ := cmd.Flags().GetString(name)
		return value
	}
	path := func(name string) files.File { return files.File{Flag: name, Path: text(name)} }
	return &Bridge{
		server: text("server"), user: text("user"), passwordFile: text("password-file"),
		tls: TLS{CA: path("ca-file"), Cert: path("cert"), Key: path("key")}, timeout: timeout,
	}
}
