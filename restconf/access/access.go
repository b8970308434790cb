// Package access tells who makes a request and what they may do: by passwords,
// by client certificates, or by tokens that another service judges. Its configuration is in
// files that it follows, so that users, roles, certificates and CAs change without a
// restart. It limits guessing, and keeps the log of writes.
//
// It knows neither trees nor dialects: how a refusal looks is its caller's.
package access

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/coe-bridge/coe-bridge/files"
)

// Role is what somebody may do. The zero Role may do nothing.
type Role uint8

// The roles. A Writer is a Reader too. A Node is the agent of one node, and may do
// what is that node's own: it is no Reader.
const (
	Node Role = iota + 1
	Reader
	Writer
)

var roleNames = map[string]Role{"node": Node, "reader": Reader, "writer": Writer}

// ParseRole reads the name of a role that people have.
func ParseRole(name string) (Role, error) {
	role, known := roleNames[name]
	if !known || role == Node {
		return 0, fmt.Errorf("role %q: want reader or writer", name)
	}
	return role, nil
}

// String is the role's name; "none" for the zero Role.
func (r Role) String() string {
	for name, role := range roleNames {
		if role == r {
			return name
		}
	}
	return "none"
}

// The ways to tell who one is.
const (
	ByPassword    = "password"
	ByCertificate = "certificate"
	ByToken       = "token"
)

// Identity is who makes a request.
type Identity struct {
	Name string
	Role Role
	Node string // the name of the node, where Role is Node
	By   string // the way that they told it
}

// nodePrefix begins the name of a node's agent, as Kubernetes names nodes among users.
const nodePrefix = "system:node:"

// agentOf is the agent of a node.
func agentOf(node, by string) Identity {
	return Identity{Name: nodePrefix + node, Role: Node, Node: node, By: by}
}

// Authenticator tells who makes a request. It is safe for use by many goroutines.
type Authenticator interface {
	// Authenticate fails with ErrNoCredentials where r has no credentials of the kind
	// that this Authenticator judges. Any other error is about those that it has: a
	// *DeniedError, a *LimitedError where they were not looked at, or an *UnjudgedError
	// where nobody could tell.
	Authenticate(r *http.Request) (Identity, error)
}

// ErrNoCredentials says that a request does not tell who makes it.
var ErrNoCredentials = errors.New("no credentials that are judged here")

// DeniedError says that credentials are not good, in words for who sent them.
type DeniedError struct{ Says string }

// Error implements error.
func (e *DeniedError) Error() string { return e.Says }

// LimitedError says that credentials were not looked at, and when to come again.
type LimitedError struct {
	Says  string
	After time.Duration
}

// Error implements error.
func (e *LimitedError) Error() string { return e.Says }

// UnjudgedError says that nobody could be asked whether credentials are good.
type UnjudgedError struct{ Says string }

// Error implements error.
func (e *UnjudgedError) Error() string { return e.Says }

// FirstOf has the first Authenticator decide that finds credentials of its kind.
func FirstOf(kinds ...Authenticator) Authenticator {
	if len(kinds) == 1 {
		return kinds[0]
	}
	return firstOf(kinds)
}

type firstOf []Authenticator

// Authenticate implements Authenticator.
func (f firstOf) Authenticate(r *http.Request) (Identity, error) {
	for _, kind := range f {
		if who, err := kind.Authenticate(r); !errors.Is(err, ErrNoCredentials) {
			return who, err
		}
	}
	return Identity{}, ErrNoCredentials
}

// Config names the files, all of which may change. An empty name is none.
type Config struct {
	UsersFile string
	// Users are in the place of UsersFile where they are not nil: for development and
	// tests.
	Users Authenticator
	// CertFile and KeyFile are what the server shows of itself.
	CertFile, KeyFile string
	// ClientCAFile holds the authorities of clients' certificates. With
	// ClientRolesFile a certificate is enough to tell who one is; without, it is
	// wanted of every client beside a password.
	ClientCAFile, ClientRolesFile string
	// Tokens configures the tokens of nodes' agents.
	Tokens TokenConfig
	// AuditLog is where writes are recorded: a file, or "-" for AuditOutput.
	AuditLog    string
	AuditOutput io.Writer
	// Files follows the files. It may follow others already, such as the files of this program's
	// clients: Access runs it and registers its metrics. Nil: it follows these alone.
	Files *files.Follower
}

// Access is what a server needs to know of those who come. Run it.
type Access struct {
	Authenticator
	files *files.Follower
	tls   *tls.Config
	audit *Audit
}

// Open reads the files. It fails if one is wrong. A file that is wrong later is logged, and
// the previous content stays in force.
func Open(cfg Config, log *slog.Logger, registry prometheus.Registerer) (*Access, error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	m := newMetrics(registry)
	a := &Access{files: cfg.Files}
	if a.files == nil {
		a.files = files.New(metricPrefix, log)
	}
	registry.MustRegister(a.files)
	certificates, err := a.openTLS(cfg, m)
	if err != nil {
		return nil, err
	}
	passwords := cfg.Users
	if passwords == nil && cfg.UsersFile != "" {
		if passwords, err = a.openPasswords(cfg.UsersFile, m, log); err != nil {
			return nil, err
		}
	}
	a.Authenticator = combine(certificates, passwords, newTokens(cfg.Tokens, m, log))
	a.audit, err = openAudit(cfg, m, log)
	return a, err
}

// Check refuses what contradicts itself, before any file is read.
func (c Config) Check() error {
	switch {
	case c.CertFile == "" && c.ClientCAFile != "":
		return errors.New("--client-ca is given without --tls-cert and --tls-key: only TLS has client certificates")
	case c.ClientCAFile == "" && c.ClientRolesFile != "":
		return errors.New("--client-roles is given without --client-ca: name the authority of the certificates that have roles")
	case c.Users == nil && c.UsersFile == "" && c.ClientRolesFile == "" && len(c.Tokens.Accounts) == 0:
		return errors.New("nobody could log in: name a file of users with --auth-file (coe-bridge passwd USER writes its lines), or of client certificates' roles with --client-roles, or try out with --dev")
	}
	return nil
}

// combine combines the configured ways. A caller that sends a password or a token is judged
// by that, even with a certificate that has a role.
func combine(c *certificates, sent ...Authenticator) Authenticator {
	sent = slices.DeleteFunc(sent, func(a Authenticator) bool { return a == nil })
	switch {
	case c == nil:
		return FirstOf(sent...)
	case !c.tellRoles:
		return &both{c, FirstOf(sent...)}
	}
	return FirstOf(append(sent, c)...)
}

// TLS is how the server shows itself and what it asks of clients; nil for plain
// HTTP.
func (a *Access) TLS() *tls.Config { return a.tls }

// Expiring are the certificates in use that must be renewed.
func (a *Access) Expiring() []files.Expiry { return a.files.Expiring() }

// Audit is the log of writes; nil where none is kept.
func (a *Access) Audit() *Audit { return a.audit }

// Run follows the files until ctx is done.
func (a *Access) Run(ctx context.Context) error {
	ticker := time.NewTicker(a.files.Every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			a.files.Look()
			a.audit.look()
		}
	}
}

// Close ends the log of writes. It is called after Run has returned, or when Run is
// not called.
func (a *Access) Close() error { return a.audit.close() }
