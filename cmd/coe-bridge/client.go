package main

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/go-resty/resty/v2"
	"github.com/spf13/cobra"
)

// clientFlags are how a running bridge is reached.
type clientFlags struct {
	server, user, passwordFile, caFile, cert, key string
	timeout                                       time.Duration
}

func (f *clientFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&f.server, "server", "s", "http://127.0.0.1:8181", "URL of the bridge")
	cmd.Flags().StringVarP(&f.user, "user", "u", "admin", "user; the password comes from COE_BRIDGE_PASSWORD or --password-file")
	cmd.Flags().StringVar(&f.passwordFile, "password-file", "", "file whose first line is the password")
	cmd.Flags().StringVar(&f.caFile, "ca-file", "", "PEM file of the authority that signed the bridge's certificate")
	cmd.Flags().StringVar(&f.cert, "cert", "", "PEM file of a client certificate (with --key)")
	cmd.Flags().StringVar(&f.key, "key", "", "PEM file of the client certificate's key")
	cmd.Flags().DurationVar(&f.timeout, "timeout", 10*time.Second, "how long to wait for an answer")
}

// client reads a running bridge's trees.
type client struct {
	http *resty.Client
	url  string
	// user is whose password was given; empty when none was.
	user string
	// nameless: the connection is TLS, and we show no certificate; shows: we do.
	nameless, shows bool
}

func (f *clientFlags) client() (*client, error) {
	server := strings.TrimRight(f.server, "/")
	if !strings.HasPrefix(server, "http://") && !strings.HasPrefix(server, "https://") {
		return nil, fmt.Errorf("--server %q: want a URL like http://127.0.0.1:8181", f.server)
	}
	tls, err := clientTLS(readOnce(), fileFlag{"--ca-file", f.caFile}, fileFlag{"--cert", f.cert}, fileFlag{"--key", f.key})
	if err != nil {
		return nil, err
	}
	password, err := f.password()
	if err != nil {
		return nil, err
	}
	secure := strings.HasPrefix(server, "https://")
	c := &client{url: server, nameless: secure && f.cert == "", shows: secure && f.cert != ""}
	c.http = resty.New().SetBaseURL(server).SetTimeout(f.timeout).SetTLSClientConfig(tls.Config()).
		SetHeader("Accept", "application/yang.data+json")
	if password != "" {
		c.user = f.user
		c.http.SetBasicAuth(f.user, password).SetDisableWarn(true)
	}
	return c, nil
}

func (f *clientFlags) password() (string, error) {
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

// The two trees of the draft-02 dialect: what is wanted, and what the backend
// has confirmed.
const (
	wanted    = "config"
	confirmed = "operational"
)

// get reads the content of a top container ("module:name") of one tree into out;
// what is not there leaves it as it is.
func (c *client) get(ctx context.Context, tree, top string, out any) error {
	_, name, _ := strings.Cut(top, ":")
	return c.getAs(ctx, tree, top, name, out)
}

// getAs reads a resource below a top container into out, from the member of the
// answer that has its name.
func (c *client) getAs(ctx context.Context, tree, top, name string, out any) error {
	answer, err := c.http.R().SetContext(ctx).Get("/restconf/" + tree + "/" + top)
	if err != nil {
		return fmt.Errorf("ask %s: %w; %s", c.url, cause(err), c.hint(err))
	}
	switch answer.StatusCode() {
	case http.StatusOK:
	case http.StatusNotFound:
		if strings.Contains(answer.String(), `"data-missing"`) {
			return nil
		}
		return fmt.Errorf("ask %s for %s: it is no coe-bridge that answers there; name one with --server", c.url, top)
	default:
		err := c.refused(answer)
		if _, known := errors.AsType[*refusal](err); known {
			return fmt.Errorf("ask %s for %s: %w", c.url, top, err)
		}
		return err
	}
	var body map[string]json.RawMessage
	if err := json.Unmarshal(answer.Body(), &body); err != nil {
		return fmt.Errorf("read answer of %s for %s: %w; is it a coe-bridge? (--server)", c.url, top, err)
	}
	if err := json.Unmarshal(body[name], out); err != nil {
		return fmt.Errorf("read answer of %s for %s: %w", c.url, top, err)
	}
	return nil
}

// denied is of a bridge that does not let us in: what it says, and what to do.
func (c *client) denied(says string) error {
	todo := "set COE_BRIDGE_PASSWORD, or name a file with --password-file"
	switch {
	case c.user != "":
		todo = "look at --user " + c.user + ", and at COE_BRIDGE_PASSWORD or --password-file"
	case c.shows:
		todo = "show another certificate with --cert and --key, or " + todo
	}
	return fmt.Errorf("ask %s: %s; %s", c.url, says, todo)
}

// cause is what went wrong, without the URL that the caller names already.
func cause(err error) error {
	var failed *url.Error
	if errors.As(err, &failed) {
		return failed.Err
	}
	return err
}

// hint says what to try when no answer came. That a certificate is missing, or refused,
// shows only after the handshake, in ways that vary.
func (c *client) hint(err error) string {
	var (
		unknown x509.UnknownAuthorityError
		named   x509.HostnameError
		invalid x509.CertificateInvalidError
		failed  *net.OpError
		slow    net.Error
	)
	broken := errors.As(err, &failed)
	switch {
	case broken && failed.Op == "dial", errors.As(err, &slow) && slow.Timeout(), errors.Is(err, context.Canceled):
	case errors.Is(err, http.ErrSchemeMismatch):
		return "it speaks http: --server http" + strings.TrimPrefix(c.url, "https")
	case errors.As(err, &unknown):
		return "name the authority of its certificate with --ca-file"
	case errors.As(err, &named):
		return "ask by an address that the certificate has (--server)"
	case errors.As(err, &invalid):
		return "give the bridge a certificate that is good now, and see that the clock here is right"
	case c.nameless:
		return "if it wants a client certificate, show one with --cert and --key"
	case c.shows && broken && failed.Op == "remote error":
		return "show another certificate with --cert and --key"
	case c.shows:
		return "if it does not take this one, show another certificate with --cert and --key"
	}
	return "is the bridge running there? (--server)"
}
