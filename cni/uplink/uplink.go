// Package uplink is the agent's connection to the bridge. It follows the stream of its node,
// keeps the interface records in memory and on disk, and creates pods for callers without
// Kubernetes.
//
// The replicas of the bridge are equivalent, and tried in turn. The package does not know
// how the records are used.
package uplink

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
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

// Config configures an Uplink. Zero fields take their defaults.
type Config struct {
	// URLs are the URLs of the bridge's replicas, without a path.
	URLs []string
	// Node is the address of the agent's node in the bridge's list of nodes.
	Node netip.Addr
	// TLS returns the TLS configuration of a new https connection. Nil means the CAs of the
	// system.
	TLS func() *tls.Config
	// User and PasswordFile, or TokenFile, authenticate the agent if its certificate does
	// not. The files are read for each request, so they may be replaced.
	User, PasswordFile, TokenFile string
	// OpenDaylight is set if OpenDaylight programs the node's switch. Then the Uplink takes nothing from a bridge that serves OVN
	// first; see ErrServesOVN.
	OpenDaylight bool
	// Dir holds the state file; "" for an Uplink without Run.
	Dir string
	// Boot is a file that identifies the boot of the node. Default /proc/sys/kernel/random/boot_id.
	Boot string
	// Silence is how long a stream may be silent before another replica is tried. Default
	// 45 s, three times the keepalive interval of the bridge.
	Silence time.Duration
	Log     *slog.Logger
}

const (
	defaultBoot    = "/proc/sys/kernel/random/boot_id"
	defaultSilence = 45 * time.Second
	requestTimeout = 10 * time.Second
)

// ErrServesOVN is the error of a bridge whose records are for nodes with OVN: the first backend of the bridge decides. A node with
// OpenDaylight goes on with the records that it has, as without a bridge.
var ErrServesOVN = errors.New("the bridge serves OVN first, and this node is with OpenDaylight: start the bridge with --backend odl,ovn")

// Uplink is a connection to the bridge. Run must run to receive records. Its methods may be
// called concurrently.
type Uplink struct {
	cfg  Config
	http *http.Client
	log  *slog.Logger

	mu     sync.Mutex
	state  state
	status Status
	// services is closed and replaced when what the bridge has reported about ports of services changes, and changed when
	// anything else does.
	changed, services chan struct{}
	exposed           exposed
	heard             time.Time // see Heard
	connections       int       // see Connections
	followed          int       // the index in Config.URLs of the replica that was followed last
	unsaved           bool
	// boot identifies the boot of the node; empty if it is unknown. sameBoot is set if the saved state is
	// of this boot.
	boot     string
	sameBoot bool
}

// New returns an Uplink with the state that an earlier one saved in Config.Dir.
func New(cfg Config) (*Uplink, error) {
	cfg.Silence, cfg.Boot = cmp.Or(cfg.Silence, defaultSilence), cmp.Or(cfg.Boot, defaultBoot)
	if len(cfg.URLs) == 0 {
		return nil, fmt.Errorf("the URL of the bridge is missing")
	}
	for i, u := range cfg.URLs {
		parsed, err := url.Parse(u)
		if err != nil || (parsed.Scheme != "http" && parsed.Scheme != "https") || parsed.Host == "" {
			return nil, fmt.Errorf("URL of the bridge %q is invalid: want a URL like https://192.168.33.10:8181", u)
		}
		cfg.URLs[i] = strings.TrimRight(u, "/")
	}
	u := &Uplink{cfg: cfg, log: cfg.Log, changed: make(chan struct{}), services: make(chan struct{})}
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

// check returns ErrServesOVN if a place, nil for none, is not for the node.
func (c *Config) check(p *Place) error {
	if c.OpenDaylight && p != nil && p.ofOVN() {
		return ErrServesOVN
	}
	return nil
}

// authorize adds the agent's credentials to a request.
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
