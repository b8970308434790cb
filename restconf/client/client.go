// Package client is the RESTCONF client of the command line. Its errors say which flag or
// variable to change.
package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-resty/resty/v2"

	"github.com/coe-bridge/coe-bridge/restconf/wire"
)

// Config says how a bridge is reached.
type Config struct {
	Server         string // URL
	User, Password string // no password: none is sent
	TLS            *tls.Config
	Shows          bool // a client certificate is shown
	Timeout        time.Duration
}

// Client makes requests to a running bridge.
type Client struct {
	http    *resty.Client
	URL     string
	timeout time.Duration
	// user is the user whose password is sent; empty if none is.
	user string
	// nameless is set for TLS without a client certificate, shows for TLS with one.
	nameless, shows bool
}

// New returns a client of the bridge at a URL.
func New(cfg Config) *Client {
	secure := strings.HasPrefix(cfg.Server, "https://")
	c := &Client{URL: cfg.Server, timeout: cfg.Timeout, nameless: secure && !cfg.Shows, shows: secure && cfg.Shows}
	c.http = resty.New().SetBaseURL(cfg.Server).SetTimeout(cfg.Timeout).SetTLSClientConfig(cfg.TLS).
		SetHeader("Accept", wire.Draft02.Media[0].Name)
	if cfg.Password != "" {
		c.user = cfg.User
		c.http.SetBasicAuth(cfg.User, cfg.Password).SetDisableWarn(true)
	}
	return c
}

// The two trees of the draft-02 dialect: what is wanted, and what the backend
// has confirmed.
const (
	Wanted    = "config"
	Confirmed = "operational"
)

// Get reads the content of a top container ("module:name") of one tree into out. It leaves
// out unchanged if the container does not exist.
func (c *Client) Get(ctx context.Context, tree, top string, out any) error {
	_, name, _ := strings.Cut(top, ":")
	return c.GetAs(ctx, tree, top, name, out)
}

// GetAs reads a resource below a top container into out. name is the member of the answer
// that has it.
func (c *Client) GetAs(ctx context.Context, tree, top, name string, out any) error {
	answer, err := c.http.R().SetContext(ctx).Get("/restconf/" + tree + "/" + top)
	if err != nil {
		return fmt.Errorf("ask %s: %w; %s", c.URL, c.cause(err), c.hint(err))
	}
	switch answer.StatusCode() {
	case http.StatusOK:
	case http.StatusNotFound:
		if strings.Contains(answer.String(), `"data-missing"`) {
			return nil
		}
		return fmt.Errorf("ask %s for %s: the server there is not a coe-bridge; name one with --server", c.URL, top)
	default:
		err := c.refused(answer)
		if _, known := errors.AsType[*Refusal](err); known {
			return fmt.Errorf("ask %s for %s: %w", c.URL, top, err)
		}
		return err
	}
	var body map[string]json.RawMessage
	if err := json.Unmarshal(answer.Body(), &body); err != nil {
		return fmt.Errorf("read answer of %s for %s: %w; is it a coe-bridge? (--server)", c.URL, top, err)
	}
	if err := json.Unmarshal(body[name], out); err != nil {
		return fmt.Errorf("read answer of %s for %s: %w", c.URL, top, err)
	}
	return nil
}

// denied is the error of a login that failed, with what to do.
func (c *Client) denied(says string) error {
	todo := "set COE_BRIDGE_PASSWORD, or name a file with --password-file"
	switch {
	case c.user != "":
		todo = "check --user " + c.user + ", and COE_BRIDGE_PASSWORD or --password-file"
	case c.shows:
		todo = "show another certificate with --cert and --key, or " + todo
	}
	return fmt.Errorf("ask %s: %s; %s", c.URL, says, todo)
}

// cause is the cause of a failed request, without the URL, which the caller names.
func (c *Client) cause(err error) error {
	if errors.Is(err, context.DeadlineExceeded) && c.timeout > 0 {
		return fmt.Errorf("no answer within %s", c.timeout)
	}
	if failed, ok := errors.AsType[*url.Error](err); ok {
		return failed.Err
	}
	return err
}

// hint says what to try when no answer came. A certificate that is missing, or refused,
// shows only after the handshake, in ways that vary.
func (c *Client) hint(err error) string {
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
		return "it speaks http: --server http" + strings.TrimPrefix(c.URL, "https")
	case errors.As(err, &unknown):
		return "name the CA of its certificate with --ca-file"
	case errors.As(err, &named):
		return "use an address that the certificate names (--server)"
	case errors.As(err, &invalid):
		return "give the bridge a valid certificate, and check the clock of this machine"
	case c.nameless:
		return "if it wants a client certificate, show one with --cert and --key"
	case c.shows && broken && failed.Op == "remote error":
		return "show another certificate with --cert and --key"
	case c.shows:
		return "if it refuses this one, show another certificate with --cert and --key"
	}
	return "is the bridge running there? (--server)"
}
