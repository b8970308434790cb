package files

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"time"
)

// A certificate must be renewed soon when less than soonLeft of its validity is left, and now
// when less than nowLeft is left. For a short validity the limits are a quarter and a twelfth
// of it, because programs renew such certificates when a third is left.
const (
	soonLeft = 30 * 24 * time.Hour
	nowLeft  = 7 * 24 * time.Hour

	soonPart = 4
	nowPart  = 12
)

// remindEvery is the time between two log entries about the same certificate.
const remindEvery = 24 * time.Hour

// Urgency is how soon a certificate must be renewed.
type Urgency int

// The urgencies, in ascending order.
const (
	NotYet Urgency = iota
	Soon
	Now
	Expired
)

// urgency returns how soon a certificate must be renewed that is valid in [from, until).
func urgency(from, until, now time.Time) Urgency {
	left, life := until.Sub(now), until.Sub(from)
	switch {
	case until.IsZero():
		return NotYet
	case left <= 0:
		return Expired
	case left <= min(nowLeft, life/nowPart):
		return Now
	case left <= min(soonLeft, life/soonPart):
		return Soon
	}
	return NotYet
}

// Expiry is a certificate that must be renewed.
type Expiry struct {
	Flag    string // that names the file, without dashes
	Path    string
	Until   time.Time
	Urgency Urgency
}

// String describes the certificate and what to do.
func (e Expiry) String() string {
	verb := "expires"
	if e.Urgency == Expired {
		verb = "has expired"
	}
	return fmt.Sprintf("the certificate in %s (--%s) %s at %s: renew it", e.Path, e.Flag, verb, e.Until.UTC().Format(time.RFC3339))
}

// Expiring returns the certificates in use that must be renewed, in the order of Follow.
func (f *Follower) Expiring() []Expiry {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []Expiry
	for _, s := range f.sets {
		if u := urgency(s.from, s.until, time.Now()); u != NotYet {
			all = append(all, Expiry{s.Flag, s.Paths[0], s.until, u})
		}
	}
	return all
}

// reminder is the last log entry about a certificate.
type reminder struct {
	urgency Urgency
	at      time.Time
}

// remind logs that a certificate must be renewed: when that becomes more urgent, and once a
// day.
func (f *Follower) remind(s *set, now time.Time) {
	u := urgency(s.from, s.until, now)
	if u <= s.reminded.urgency && now.Sub(s.reminded.at) < remindEvery {
		s.reminded.urgency = u
		return
	}
	s.reminded = reminder{u, now}
	level, text := slog.LevelError, "certificate must be renewed now"
	switch u {
	case NotYet:
		return
	case Soon:
		level, text = slog.LevelWarn, "certificate must be renewed soon"
	case Expired:
		text = "certificate has expired"
	}
	f.log.Log(context.Background(), level, text, "flag", "--"+s.Flag, "path", s.Paths[0], "not_after", s.until)
}

// ChainValidity returns the validity of the certificate chain in the first content: the
// validity of the certificate that expires first.
func ChainValidity(contents [][]byte) (from, until time.Time) {
	for _, c := range parseCertificates(contents[0]) {
		if until.IsZero() || c.NotAfter.Before(until) {
			from, until = c.NotBefore, c.NotAfter
		}
	}
	return from, until
}

// AuthorityValidity returns the validity of the CA certificates in the first content: of the CA
// that expires last, because an old CA stays in the file while certificates are renewed.
func AuthorityValidity(contents [][]byte) (from, until time.Time) {
	for _, c := range parseCertificates(contents[0]) {
		if c.NotAfter.After(until) {
			from, until = c.NotBefore, c.NotAfter
		}
	}
	return from, until
}

// parseCertificates returns the certificates of a PEM file, and ignores other blocks.
func parseCertificates(text []byte) (all []*x509.Certificate) {
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return all
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		if c, err := x509.ParseCertificate(block.Bytes); err == nil {
			all = append(all, c)
		}
	}
}
