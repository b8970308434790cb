package restconf

import (
	"crypto/rand"
	"crypto/tls"
	"net/http"
	"strings"
	"sync"
	"time"
)

const (
	ticketParameter = "ticket"
	ticketLife      = time.Minute
	maxTickets      = 4096
)

// tickets let who has asked where a stream's events are open its websocket without
// credentials: OpenDaylight's websockets have none, so its clients send none. A ticket is
// for one stream, can be used once and for a minute, and stands for the credentials that
// it was asked with: when those end, so does the stream.
type tickets struct {
	mu    sync.Mutex
	given map[string]ticket
	order []string // their names and those of some that were used, the oldest first
}

type ticket struct {
	path          string
	authorization []string
	tls           *tls.ConnectionState
	ends          time.Time
}

// issue makes a ticket for the stream that r, which was let in, is for.
func (t *tickets) issue(r *http.Request) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	t.discard(now)
	if t.given == nil {
		t.given = map[string]ticket{}
	}
	name := rand.Text()
	t.order = append(t.order, name)
	t.given[name] = ticket{r.URL.Path, r.Header["Authorization"], r.TLS, now.Add(ticketLife)}
	return name
}

// discard drops the oldest tickets as long as they have ended, or were used, or there is
// no room: who lost one asks again.
func (t *tickets) discard(now time.Time) {
	for len(t.order) > 0 {
		one, unused := t.given[t.order[0]]
		if unused && now.Before(one.ends) && len(t.order) < maxTickets {
			return
		}
		delete(t.given, t.order[0])
		t.order = t.order[1:]
	}
}

// redeem is r with the credentials of its ticket, where it opens a websocket with a good
// one and no credentials of its own.
func (t *tickets) redeem(r *http.Request) *http.Request {
	if !strings.HasPrefix(r.URL.Path, draftStreamsPrefix) || !isUpgrade(r) || r.Header.Get("Authorization") != "" {
		return r
	}
	name := r.URL.Query().Get(ticketParameter)
	if name == "" {
		return r
	}
	t.mu.Lock()
	one, known := t.given[name]
	delete(t.given, name)
	t.mu.Unlock()
	if !known || one.path != r.URL.Path || time.Now().After(one.ends) {
		return r
	}
	with := *r
	with.Header = r.Header.Clone()
	with.Header["Authorization"] = one.authorization
	with.TLS = one.tls
	return &with
}
