package salremote

import (
	"crypto/rand"
	"crypto/tls"
	"net/http"
	"slices"
	"sync"
	"time"
)

const (
	ticketParameter = "ticket"
	ticketLife      = time.Minute
	maxTickets      = 4096
	maxOwnTickets   = 256 // of one identity
)

// tickets let a client that has asked for a stream's location open its websocket without
// credentials: OpenDaylight's websockets need none, so its clients send none. A ticket is
// for one stream, can be used once and for a minute, and stands for the credentials of the
// request for it: when those are revoked, the stream ends.
type tickets struct {
	mu    sync.Mutex
	given map[string]ticket
	order []string       // their names, the oldest first
	own   map[string]int // the number of tickets of each identity
}

type ticket struct {
	owner         string
	Path          string
	authorization []string
	tls           *tls.ConnectionState
	ends          time.Time
}

// issue creates a ticket for the stream of the authenticated request r.
func (t *tickets) issue(r *http.Request, owner string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	t.discard(now)
	if t.given == nil {
		t.given, t.own = map[string]ticket{}, map[string]int{}
	}
	if t.own[owner] >= maxOwnTickets {
		t.dropOldest(owner)
	}
	t.own[owner]++
	name := rand.Text()
	t.order = append(t.order, name)
	t.given[name] = ticket{owner, r.URL.Path, r.Header["Authorization"], r.TLS, now.Add(ticketLife)}
	return name
}

// discard drops the oldest tickets as long as they have expired or there are too many. A
// client that lost its ticket asks again.
func (t *tickets) discard(now time.Time) {
	for len(t.order) > 0 && (len(t.order) >= maxTickets || !now.Before(t.given[t.order[0]].ends)) {
		t.drop(0)
	}
}

// dropOldest drops the oldest ticket of an identity.
func (t *tickets) dropOldest(owner string) {
	t.drop(slices.IndexFunc(t.order, func(name string) bool { return t.given[name].owner == owner }))
}

// drop drops the ticket at a place in the order.
func (t *tickets) drop(i int) {
	owner := t.given[t.order[i]].owner
	if t.own[owner]--; t.own[owner] == 0 {
		delete(t.own, owner)
	}
	delete(t.given, t.order[i])
	t.order = slices.Delete(t.order, i, i+1)
}

// Redeem returns r, a request for a stream, with the credentials of its ticket, if it opens a
// websocket with a valid ticket and without credentials.
func (t *tickets) Redeem(r *http.Request) *http.Request {
	if !isUpgrade(r) || r.Header.Get("Authorization") != "" {
		return r
	}
	name := r.URL.Query().Get(ticketParameter)
	if name == "" {
		return r
	}
	t.mu.Lock()
	one, known := t.given[name]
	if known {
		t.drop(slices.Index(t.order, name))
	}
	t.mu.Unlock()
	if !known || one.Path != r.URL.Path || time.Now().After(one.ends) {
		return r
	}
	with := *r
	with.Header = r.Header.Clone()
	with.Header["Authorization"] = one.authorization
	with.TLS = one.tls
	return &with
}
