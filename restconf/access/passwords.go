package access

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/coe-bridge/coe-bridge/files"
)

const (
	// hashesAtOnce and hashShare bound how many passwords are hashed at once: so many, on
	// a part of the processors. Guesses must not take the processors from clients whose
	// credentials are known, nor the memory that a hash needs.
	hashesAtOnce = 2
	hashShare    = 2
	// hashWait is how long a login waits for that.
	hashWait = 5 * time.Second
)

// passwords judges HTTP Basic authentication (RFC 7617).
//
// A password is hashed once. Then a keyed digest of it is known until the file
// changes, right or wrong; so only the first request of a client pays for the hash.
type passwords struct {
	users   atomic.Pointer[users]
	secret  []byte
	slots   chan struct{}
	failed  *failures
	metrics *metrics
	log     *slog.Logger
}

var _ Authenticator = (*passwords)(nil)

// errWrong says the same of a name and of a password.
var errWrong = &DeniedError{"this server knows no such user with this password"}

func newPasswords(m *metrics, log *slog.Logger) *passwords {
	p := &passwords{
		secret: make([]byte, sha256.Size), slots: make(chan struct{}, max(1, min(hashesAtOnce, runtime.GOMAXPROCS(0)/hashShare))),
		failed: newFailures(addressBudget), metrics: m, log: log,
	}
	rand.Read(p.secret) // never fails
	return p
}

func (a *Access) openPasswords(path string, m *metrics, log *slog.Logger) (Authenticator, error) {
	p := newPasswords(m, log)
	if err := a.files.Follow(files.Set{Flag: "auth-file", Paths: []string{path}, Load: p.load}); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *passwords) load(contents [][]byte) error {
	u, err := parseUsers(contents[0])
	if err == nil {
		p.users.Store(u)
	}
	return err
}

// Authenticate implements Authenticator.
func (p *passwords) Authenticate(r *http.Request) (Identity, error) {
	name, password, ok := r.BasicAuth()
	if !ok {
		return Identity{}, ErrNoCredentials
	}
	from, m, all := AddressOf(r.RemoteAddr), markOf(p.secret, name, password), p.users.Load()
	if all.isWrong(m) { // a robot with an old password, which does not guess
		p.metrics.logins.WithLabelValues(wrongPassword).Inc()
		return Identity{}, errWrong
	}
	// Before what is known is looked at, or a guess at that would cost nothing.
	if err := p.limited(from, name); err != nil {
		return Identity{}, err
	}
	u := all.byName[name]
	if u == nil || !u.known(m) {
		var err error
		if u, err = p.verify(r.Context(), from, name, password, m); err != nil {
			return Identity{}, err
		}
	}
	p.failed.succeeded(from, name)
	return Identity{Name: name, Role: u.role, By: ByPassword}, nil
}

// verify hashes a password.
func (p *passwords) verify(ctx context.Context, from netip.Prefix, name, password string, m *mark) (*user, error) {
	if err := p.slot(ctx); err != nil {
		return nil, err
	}
	defer func() { <-p.slots }()
	all := p.users.Load()
	u, known := all.byName[name]
	switch { // while it waited
	case known && u.known(m):
		return u, nil
	case all.isWrong(m):
		return nil, errWrong
	}
	if err := p.limited(from, name); err != nil { // those before it have failed
		return nil, err
	}
	if !known {
		u = all.decoy(p.secret, name)
	}
	if !u.hash.matches(password) || !known {
		all.setWrong(m)
		p.fail(from, name, known)
		return nil, errWrong
	}
	u.verified.Store(m)
	return u, nil
}

// slot waits until a password may be hashed.
func (p *passwords) slot(ctx context.Context) error {
	timer := time.NewTimer(hashWait)
	defer timer.Stop()
	select {
	case p.slots <- struct{}{}:
		return nil
	case <-timer.C:
	case <-ctx.Done():
	}
	p.metrics.logins.WithLabelValues(limitedLogin).Inc()
	return &LimitedError{"too many passwords are being checked", time.Second}
}

// limited refuses callers that must wait. A caller that is not in the file any more, and has
// logged in from there before, gets errWrong instead. So its streams and requests end.
// Other callers do not learn whether a name exists.
func (p *passwords) limited(from netip.Prefix, name string) error {
	after := p.failed.wait(from, name, time.Now())
	if after <= 0 {
		return nil
	}
	if p.users.Load().byName[name] == nil && p.failed.hasSucceeded(from, name) {
		p.metrics.logins.WithLabelValues(wrongPassword).Inc()
		return errWrong
	}
	p.metrics.logins.WithLabelValues(limitedLogin).Inc()
	return &LimitedError{fmt.Sprintf("too many logins have failed: try again in %s", after.Round(time.Second)), after}
}

// fail counts a wrong password. The log names who is known alone: others have typed
// a password in the place of their name before.
func (p *passwords) fail(from netip.Prefix, name string, known bool) {
	p.failed.failed(from, name, time.Now())
	p.metrics.logins.WithLabelValues(wrongPassword).Inc()
	if !known {
		name = "(unknown)"
	}
	p.log.Warn("login failed", "user", name, "from", from.Addr())
}

// AddressOf is where a client is, by the address and port of its end of a connection: its
// address, or the network of 64 bits that one IPv6 host has to itself.
func AddressOf(remote string) netip.Prefix {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Prefix{} // one place for all that has no address
	}
	addr := at.Addr().Unmap().WithZone("")
	bits := addr.BitLen()
	if addr.Is6() {
		bits = 64
	}
	return netip.PrefixFrom(addr, bits).Masked()
}
