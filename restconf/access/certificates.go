package access

import (
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// certificates judges the certificates that clients show, at each request: so one
// that ends, and an authority that is taken out of its file, end on connections
// that are open.
type certificates struct {
	// tellRoles is set where a certificate is enough to tell who one is.
	tellRoles bool
	trust     atomic.Pointer[trust]
	roles     atomic.Pointer[certificateRoles]
	metrics   *metrics
}

var _ Authenticator = (*certificates)(nil)

// Authenticate implements Authenticator. Whose certificate is good and has no role
// is known, and may do nothing.
func (c *certificates) Authenticate(r *http.Request) (Identity, error) {
	leaf, err := c.verify(r)
	if err != nil {
		return Identity{}, err
	}
	who := c.roles.Load().identify(leaf)
	who.By = ByCertificate
	return who, nil
}

// verify returns the certificate of who makes r.
func (c *certificates) verify(r *http.Request) (*x509.Certificate, error) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil, ErrNoCredentials
	}
	shown := r.TLS.PeerCertificates
	if err := c.trust.Load().check(shown, time.Now()); err != nil {
		c.metrics.logins.WithLabelValues(badCertificate).Inc()
		return nil, &DeniedError{"the client certificate is not good here: " + err.Error()}
	}
	return shown[0], nil
}

// both wants a good certificate, and something that is sent.
type both struct {
	certificates *certificates
	sent         Authenticator
}

// Authenticate implements Authenticator: what is sent tells who it is.
func (b *both) Authenticate(r *http.Request) (Identity, error) {
	if _, err := b.certificates.verify(r); err != nil {
		return Identity{}, err
	}
	return b.sent.Authenticate(r)
}

// trust is a set of authorities, and what was found good by it.
type trust struct {
	pool *x509.CertPool

	mu   sync.Mutex
	good recent[fingerprint, time.Time] // until when
}

type fingerprint [sha256.Size]byte

func parseTrust(pem []byte) (*trust, error) {
	t := &trust{pool: x509.NewCertPool()}
	if !t.pool.AppendCertsFromPEM(pem) {
		return nil, errors.New("there is no certificate in it")
	}
	return t, nil
}

// check verifies what a client has shown, its own certificate first.
func (t *trust) check(shown []*x509.Certificate, now time.Time) error {
	print := fingerprint(sha256.Sum256(shown[0].Raw))
	t.mu.Lock()
	until := t.good.get(print)
	t.mu.Unlock()
	if now.Before(until) {
		return nil
	}
	between := x509.NewCertPool()
	for _, c := range shown[1:] {
		between.AddCert(c)
	}
	chains, err := shown[0].Verify(x509.VerifyOptions{
		Roots: t.pool, Intermediates: between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.good.put(print, goodUntil(chains))
	return nil
}

// goodUntil is when the last of some chains ends: each does with the first of its
// certificates that does.
func goodUntil(chains [][]*x509.Certificate) (until time.Time) {
	for _, chain := range chains {
		end := chain[0].NotAfter
		for _, c := range chain[1:] {
			if c.NotAfter.Before(end) {
				end = c.NotAfter
			}
		}
		if end.After(until) {
			until = end
		}
	}
	return until
}
