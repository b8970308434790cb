package access

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/pki"
	"golang.org/x/crypto/bcrypt"
)

const (
	patience = 2 * time.Minute
	poll     = 5 * time.Millisecond
)

// bed is an Access whose files a test changes.
type bed struct {
	*Access
	t        testing.TB
	cfg      Config
	registry *prometheus.Registry
	log      *logged
}

// logged is a log that is read while it is written.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// newBed opens and runs an Access until the test ends.
func newBed(t testing.TB, cfg Config) *bed {
	t.Helper()
	b := &bed{t: t, cfg: cfg, registry: prometheus.NewRegistry(), log: &logged{}}
	var err error
	b.Access, err = Open(cfg, slog.New(slog.NewTextHandler(b.log, nil)), b.registry)
	require.NoError(t, err)
	b.files.Every = poll
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
		require.NoError(t, b.Close())
	})
	return b
}

// login asks as somebody from an address.
func (b *bed) login(name, password, from string) (Identity, error) {
	r, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, "/", http.NoBody)
	require.NoError(b.t, err)
	r.SetBasicAuth(name, password)
	r.RemoteAddr = net.JoinHostPort(from, "1234")
	return b.Authenticate(r)
}

func (b *bed) good(name, password string) bool {
	_, err := b.login(name, password, "127.0.0.1")
	return err == nil
}

// eventually waits until something holds.
func (b *bed) eventually(holds func() bool, what string, args ...any) {
	b.t.Helper()
	require.Eventually(b.t, holds, patience, poll, fmt.Sprintf(what, args...)+"; log: %s", b.log)
}

// metric is the value of a metric with one label's value, or none.
func (b *bed) metric(name, label string) float64 {
	families, err := b.registry.Gather()
	require.NoError(b.t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && (label == "" || m.GetLabel()[0].GetValue() == label) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	require.Fail(b.t, "no such metric", "%s %s", name, label)
	return 0
}

// line is a line of a users file, with a hash that costs little.
func line(t testing.TB, name, role, password string) string {
	t.Helper()
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	require.NoError(t, err)
	return name + ":" + role + ":" + string(hash) + "\n"
}

func write(t testing.TB, path, content string) {
	t.Helper()
	next := path + ".next" // nobody reads half of it
	require.NoError(t, os.WriteFile(next, []byte(content), 0o600))
	require.NoError(t, os.Rename(next, path))
}

func file(t testing.TB, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	write(t, path, content)
	return path
}

// serve serves what Authenticate says over TLS until the test ends, and returns the
// URL.
func (b *bed) serve() string {
	b.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b.t, err)
	server := &http.Server{
		TLSConfig: b.TLS(), ReadHeaderTimeout: patience, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			who, err := b.Authenticate(r)
			if err != nil {
				w.WriteHeader(http.StatusUnauthorized)
				fmt.Fprint(w, err)
				return
			}
			fmt.Fprintf(w, "%s %s %s", who.Name, who.Role, who.By)
		}),
	}
	done := make(chan error, 1)
	go func() { done <- server.ServeTLS(l, "", "") }()
	b.t.Cleanup(func() {
		require.NoError(b.t, server.Close())
		require.ErrorIs(b.t, <-done, http.ErrServerClosed)
	})
	return "https://" + l.Addr().String()
}

// caller asks a served bed over connections of its own.
type caller struct {
	http *http.Client
	url  string
}

func newCaller(t testing.TB, url string, trusted *pki.Authority, shown *pki.Pair) *caller {
	cfg := &tls.Config{RootCAs: trusted.Pool(), ClientSessionCache: tls.NewLRUClientSessionCache(0)}
	if shown != nil {
		c := shown.TLS(t)
		// Shown whatever the server asks for, as one who is refused would.
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &c, nil }
	}
	transport := &http.Transport{TLSClientConfig: cfg, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &caller{&http.Client{Transport: transport, Timeout: patience}, url}
}

// ask returns what the server says, with a password ("name:password") or without.
func (c *caller) ask(t testing.TB, credentials string) (string, error) {
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.url, http.NoBody)
	require.NoError(t, err)
	if name, password, ok := strings.Cut(credentials, ":"); ok {
		r.SetBasicAuth(name, password)
	}
	answer, err := c.http.Do(r)
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(answer.Body)
	return string(text), errors.Join(err, answer.Body.Close())
}

func TestConfigRefuses(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  Config
		says string
	}{
		{"nobody", Config{}, "nobody could log in"},
		{"authority without TLS", Config{UsersFile: "u", ClientCAFile: "c"}, "only TLS has client certificates"},
		{"roles without authority", Config{UsersFile: "u", CertFile: "c", KeyFile: "k", ClientRolesFile: "r"}, "name the authority"},
		{"no such file", Config{UsersFile: "/nonexistent"}, "read --auth-file: stat /nonexistent: no such file"},
		{"folder", Config{UsersFile: t.TempDir()}, "not a regular file"},
		{"audit log", Config{UsersFile: file(t, line(t, "ann", "reader", "x")), AuditLog: "/nonexistent/log"}, "open --audit-log: open /nonexistent/log"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Open(c.cfg, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
			require.ErrorContains(t, err, c.says)
		})
	}
}

func TestRoles(t *testing.T) {
	for name, role := range map[string]Role{"reader": Reader, "writer": Writer} {
		parsed, err := ParseRole(name)
		require.NoError(t, err)
		require.Equal(t, role, parsed)
		require.Equal(t, name, role.String())
	}
	for _, name := range []string{"root", "node"} {
		_, err := ParseRole(name)
		require.ErrorContains(t, err, "want reader or writer")
	}
	require.Equal(t, "node", Node.String())
	require.Equal(t, "none", Role(0).String())
}
