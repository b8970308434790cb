package restconf

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/coe-bridge/coe-bridge/restconf/access"
	"github.com/coe-bridge/coe-bridge/restconf/wire"
)

// The bounds of one node's agent. An agent has one stream, and makes one pod in a
// request. Its requests wait for their turn, so that the pods of a node that starts all
// get through.
const (
	nodeStreams  = 4
	nodeRequests = 16  // under way
	nodeWaiting  = 256 // that wait to be under way
	nodeBurst    = 200
	nodeEvery    = 10 * time.Millisecond // a further request after the burst
	nodeBody     = 64 << 10
)

// The bounds of one user, and of all together.
const (
	userRequests = 1024
	userBodies   = 16 // bodies of the largest size
	allBodies    = 32
)

// The limits that refuse, as arguments of Config.Limited.
const (
	LimitStreams     = "streams"
	LimitRequests    = "requests"
	LimitBodies      = "bodies"
	LimitPods        = "pods"
	LimitConnections = "connections"
)

// Limits are all limits that refuse.
var Limits = []string{LimitStreams, LimitRequests, LimitBodies, LimitPods, LimitConnections}

// shares limits how much of the shared resources one identity can use:
//
//	                    | an agent                       | a user
//	streams             | nodeStreams; a further one     | three quarters of Config.MaxStreams,
//	                    | ends its oldest                | which is for all users; else 503
//	requests under way  | nodeRequests, and one each     | userRequests; else 503
//	                    | nodeEvery; others wait for     |
//	                    | their turn, nodeWaiting at most|
//	GETs of trees       | one at a time                  |
//	bytes of bodies     | nodeBody in a request          | userBodies bodies; allBodies for all users
//
// Agents have their own limits, apart from users and from each other. So no identity can
// use up what another node's agent needs. An identity is a node, or the name of a user or certificate.
type shares struct {
	maxStreams int
	bodyLimit  int64
	timeout    time.Duration
	limited    func(limit string)

	mu          sync.Mutex
	userStreams int
	userBodies  int64
	of          map[holder]*share
}

// holder is one identity.
type holder struct {
	node bool
	name string
}

func holderOf(who access.Identity) holder {
	if who.Role == access.Node {
		return holder{true, who.Node}
	}
	return holder{false, who.Name}
}

// share is what one identity has taken.
type share struct {
	streams  []*streamPlace // oldest first
	requests int            // under way or waiting
	bodies   int64          // bytes under way

	// For nodes only. Their shares are kept, since there are only as many as nodes.
	turns chan struct{} // holds one for each request under way
	whole time.Time     // when nodeBurst requests may come at once again
	reads sync.Mutex    // held while a GET is answered: what is read costs as much as its namespace is large
}

// streamPlace is the place of a stream.
type streamPlace struct{ end context.CancelFunc }

// held is what one request has taken.
type held struct {
	shares *shares
	who    holder
	share  *share
	bodies int64
}

type heldKey struct{}

// with is r with what it has taken, for those who take more.
func (h *held) with(r *http.Request) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), heldKey{}, h))
}

// heldBy is what a request has taken; nil where it was not noted.
func heldBy(r *http.Request) *held {
	h, _ := r.Context().Value(heldKey{}).(*held)
	return h
}

// get returns a share. The lock is held.
func (s *shares) get(who holder) *share {
	one := s.of[who]
	if one == nil {
		one = &share{}
		if who.node {
			one.turns = make(chan struct{}, nodeRequests)
		}
		if s.of == nil {
			s.of = map[holder]*share{}
		}
		s.of[who] = one
	}
	return one
}

// drop forgets the share of a user who has taken nothing. The lock is held.
func (s *shares) drop(who holder, one *share) {
	if !who.node && one.requests == 0 && len(one.streams) == 0 {
		delete(s.of, who)
	}
}

// enter takes a place for a request, which the caller gives back with leave. That of an
// agent waits for its turn.
func (s *shares) enter(ctx context.Context, who holder) (*held, error) {
	most, wait := userRequests, time.Duration(0)
	if who.node {
		most = nodeRequests + nodeWaiting
	}
	s.mu.Lock()
	one := s.get(who)
	if one.requests >= most {
		s.mu.Unlock()
		return nil, s.refuse(LimitRequests, fmt.Sprintf("%d requests of %s are under way already", most, who.name))
	}
	one.requests++
	if who.node {
		wait = one.pace(time.Now())
	}
	s.mu.Unlock()
	h := &held{shares: s, who: who, share: one}
	if !who.node {
		return h, nil
	}
	if !one.wait(ctx, wait, s.timeout) {
		h.release()
		return nil, s.refuse(LimitRequests, "the node "+who.name+" makes too many requests")
	}
	return h, nil
}

// pace is how long the next request has to wait so that the rate is kept.
func (o *share) pace(now time.Time) time.Duration {
	if o.whole.Before(now) {
		o.whole = now
	}
	o.whole = o.whole.Add(nodeEvery)
	return o.whole.Sub(now) - nodeBurst*nodeEvery
}

// wait waits until a request of an agent has its turn, and reports whether it has.
func (o *share) wait(ctx context.Context, pace, most time.Duration) bool {
	timeout := time.NewTimer(most)
	defer timeout.Stop()
	if pace > 0 {
		turn := time.NewTimer(pace)
		defer turn.Stop()
		select {
		case <-turn.C:
		case <-timeout.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
	select {
	case o.turns <- struct{}{}:
		return true
	case <-timeout.C:
	case <-ctx.Done():
	}
	return false
}

// leave gives back what a request has taken.
func (h *held) leave() {
	if h.who.node {
		<-h.share.turns
	}
	h.release()
}

func (h *held) release() {
	h.shares.mu.Lock()
	defer h.shares.mu.Unlock()
	h.share.requests--
	h.share.bodies -= h.bodies
	if !h.who.node {
		h.shares.userBodies -= h.bodies
	}
	h.bodies = 0
	h.shares.drop(h.who, h.share)
}

// bodyLimit bounds the body of one request.
func (h *held) bodyLimit(limit int64) int64 {
	if h != nil && h.who.node {
		return min(limit, nodeBody)
	}
	return limit
}

// takeBody takes bytes of a body, until the request leaves. The bytes of agents' bodies
// are bounded by the requests that are under way.
func (h *held) takeBody(n int64) error {
	if h == nil || h.who.node {
		return nil
	}
	s := h.shares
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.share.bodies+n > userBodies*s.bodyLimit || s.userBodies+n > allBodies*s.bodyLimit {
		return s.refuse(LimitBodies, "the bodies of requests that are under way have too many bytes")
	}
	h.bodies += n
	h.share.bodies += n
	s.userBodies += n
	return nil
}

// Name implements stream.Caller.
func (h *held) Name() string { return h.who.name }

// Place implements stream.Caller.
func (h *held) Place(ctx context.Context) (_ context.Context, leave func(), err error) {
	s, who := h.shares, h.who
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.get(who)
	switch {
	case who.node && len(one.streams) >= nodeStreams:
		one.streams[0].end()
		one.streams = one.streams[1:]
		s.limited(LimitStreams)
	case !who.node && (s.userStreams >= s.maxStreams || len(one.streams) >= s.maxStreams-s.maxStreams/4):
		s.drop(who, one)
		return nil, nil, s.refuse(LimitStreams, fmt.Sprintf(
			"too many streams are followed already (%d by all users, %d by %s)", s.userStreams, len(one.streams), who.name))
	}
	ctx, end := context.WithCancel(ctx)
	p := &streamPlace{end}
	one.streams = append(one.streams, p)
	if !who.node {
		s.userStreams++
	}
	return ctx, func() { s.endStream(who, one, p) }, nil
}

func (s *shares) endStream(who holder, one *share, p *streamPlace) {
	p.end()
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(one.streams, p); i >= 0 {
		one.streams = slices.Delete(one.streams, i, i+1)
		if !who.node {
			s.userStreams--
		}
	}
	s.drop(who, one)
}

// followed is how many streams are followed.
func (s *shares) followed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, one := range s.of {
		n += len(one.streams)
	}
	return n
}

// refuse returns a 503 that asks the client to retry.
func (s *shares) refuse(limit, why string) error {
	s.limited(limit)
	return wire.NewProblem(http.StatusServiceUnavailable, "application", "resource-denied", why+": retry, or ask another replica")
}
