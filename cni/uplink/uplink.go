// Package uplink is what a node's agent hears from the bridge and says to it: it
// follows the stream of its node, keeps the records of the node's interfaces, on disk
// too, and makes pods for callers that know no Kubernetes.
//
// Any replica of the bridge will do; they are tried in turn. What the records are for
// it does not know.
package uplink

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"
)

// Config says where the bridge is and who asks. The zero value of a field takes its
// default.
type Config struct {
	// URLs are those of the bridge's replicas, without a path.
	URLs []string
	// Node is the address of the agent's node, as the bridge knows it.
	Node netip.Addr
	// TLS returns the configuration of a new connection, for https. Nil: whom the system
	// trusts is trusted.
	TLS func() *tls.Config
	// User and PasswordFile, or TokenFile, tell who the agent is where its certificate
	// does not. The files are read at each request: they may change.
	User, PasswordFile, TokenFile string
	// Dir is where the records are kept; "" for one that is asked and does not Run.
	Dir string
	// Silence is for how long the bridge may say nothing before another replica is
	// tried. Default 45 s, three times what it is silent for.
	Silence time.Duration
	Log     *slog.Logger
}

const (
	defaultSilence = 45 * time.Second
	requestTimeout = 10 * time.Second
)

// Uplink is a connection to the bridge. Run it. Its methods may be called by many
// goroutines.
type Uplink struct {
	cfg  Config
	http *http.Client
	log  *slog.Logger

	mu      sync.Mutex
	state   state
	changed chan struct{} // closed when state or standing is another
	is      Standing
	unsaved bool
}

// New returns an Uplink that knows what an earlier one has kept in Config.Dir.
func New(cfg Config) (*Uplink, error) {
	if cfg.Silence == 0 {
		cfg.Silence = defaultSilence
	}
	if len(cfg.URLs) == 0 {
		return nil, fmt.Errorf("no URL of the bridge")
	}
	for i, u := range cfg.URLs {
		parsed, err := url.Parse(u)
		if err != nil || (parsed.Scheme != "http" && parsed.Scheme != "https") || parsed.Host == "" {
			return nil, fmt.Errorf("URL of the bridge %q: want one like https://192.168.33.10:8181", u)
		}
		cfg.URLs[i] = strings.TrimRight(u, "/")
	}
	u := &Uplink{cfg: cfg, log: cfg.Log, changed: make(chan struct{})}
	u.http = &http.Client{Transport: cfg.transport()}
	u.load()
	return u, nil
}

func (c *Config) transport() *http.Transport {
	dialer := &net.Dialer{Timeout: requestTimeout}
	t := &http.Transport{
		DialContext: dialer.DialContext, ForceAttemptHTTP2: true,
		TLSHandshakeTimeout: requestTimeout, ResponseHeaderTimeout: requestTimeout,
	}
	if c.TLS != nil {
		t.DialTLSContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			config := c.TLS().Clone()
			config.NextProtos = []string{"h2", "http/1.1"}
			return (&tls.Dialer{NetDialer: dialer, Config: config}).DialContext(ctx, network, address)
		}
	}
	return t
}

// authorize says who the agent is.
func (u *Uplink) authorize(r *http.Request) error {
	switch {
	case u.cfg.TokenFile != "":
		token, err := firstLine(u.cfg.TokenFile)
		if err != nil {
			return fmt.Errorf("read token: %w", err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
	case u.cfg.PasswordFile != "":
		password, err := firstLine(u.cfg.PasswordFile)
		if err != nil {
			return fmt.Errorf("read password: %w", err)
		}
		r.SetBasicAuth(u.cfg.User, password)
	}
	return nil
}

func firstLine(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimRight(line, "\r"), nil
}
