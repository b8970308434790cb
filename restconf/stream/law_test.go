package stream

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// history is what happened to one stream: for each revision what there was, by key
// the revision that put it there.
type history struct {
	head    int64
	at      []map[string]int64
	changes [][]Change
}

func newHistory() *history { return &history{at: []map[string]int64{{}}, changes: [][]Change{nil}} }

func (h *history) happen(random *rand.Rand) {
	h.head++
	state := map[string]int64{}
	maps.Copy(state, h.at[h.head-1])
	var changes []Change
	for _, k := range random.Perm(6)[:1+random.IntN(3)] {
		key := fmt.Sprint(k)
		state[key] = h.head
		value := key + "=" + strconv.FormatInt(h.head, 10)
		c := Change{Stream: "s", Key: key, Name: "m:changed", Content: []byte(value)}
		if random.IntN(2) == 0 {
			c.Gone = true
			delete(state, key)
		}
		changes = append(changes, c)
	}
	h.at, h.changes = append(h.at, state), append(h.changes, changes)
}

// replica is a Log that follows the history in its own time.
type replica struct {
	*Log
	at int64
}

func (r *replica) list(h *history) {
	var all []Change
	for key, revision := range h.at[h.head] {
		all = append(all, Change{Stream: "s", Key: key, Name: "m:changed", Content: fmt.Appendf(nil, "%s=%d", key, revision)})
	}
	r.at = h.head
	r.Reset(r.at, all)
}

func (r *replica) advance(h *history, to int64) {
	for r.at < to {
		r.at++
		r.Apply(r.at, h.changes[r.at])
	}
}

// client follows as an agent does: it takes whole groups.
type client struct {
	t     *testing.T
	h     *history
	s     *Cursor
	id    string
	state map[string]int64
}

// hear takes all events. If the connection breaks before the n-th event, the group is
// incomplete.
func (c *client) hear(n int) {
	group := c.s.Take()
	if 0 <= n && n < len(group) {
		c.leave()
		return
	}
	for i, e := range group {
		require.Equal(c.t, i == len(group)-1, e.ID != "")
		c.take(e)
	}
}

func (c *client) take(e Event) {
	key, revision, _ := strings.Cut(string(e.Content), "=")
	switch {
	case e.Name == "m:begin":
		c.state = map[string]int64{}
	case e.Name == "m:complete":
	case c.h.gone(c.t, key, revision):
		delete(c.state, key)
	default:
		c.state[key] = number(c.t, revision)
	}
	if e.ID == "" {
		return
	}
	now, _, _ := strings.Cut(e.ID, "@")
	before, _, _ := strings.Cut(c.id, "@")
	if before != "" {
		require.GreaterOrEqual(c.t, number(c.t, now), number(c.t, before), "back in time")
	}
	require.Equal(c.t, c.h.at[number(c.t, now)], c.state)
	c.id = e.ID
}

// gone reports whether a revision removed the key that it changed.
func (h *history) gone(t *testing.T, key, revision string) bool {
	return h.at[number(t, revision)][key] != number(t, revision)
}

func number(t *testing.T, text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	require.NoError(t, err)
	return n
}

func (c *client) leave() {
	c.s.Close()
	c.s = nil
}

// Whatever happens, and wherever followers come back: after each group they know the
// stream as it was at that revision, never an older one than before.
func TestFollowersOfManyReplicas(t *testing.T) {
	for seed := range uint64(300) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { follow(t, rand.New(rand.NewPCG(seed, 1))) })
	}
}

func follow(t *testing.T, random *rand.Rand) {
	h := newHistory()
	for range 1 + random.IntN(5) {
		h.happen(random)
	}
	replicas := make([]*replica, 3)
	for i := range replicas {
		replicas[i] = &replica{Log: newLog(1 + random.IntN(20))}
		replicas[i].list(h)
	}
	clients := make([]*client, 4)
	for i := range clients {
		clients[i] = &client{t: t, h: h, state: map[string]int64{}}
	}
	for range 400 {
		switch r := replicas[random.IntN(len(replicas))]; random.IntN(12) {
		case 0, 1, 2:
			h.happen(random)
		case 3, 4, 5:
			r.advance(h, min(h.head, r.at+int64(random.IntN(8))))
		case 6:
			if random.IntN(8) == 0 {
				r.list(h)
			}
		default:
			act(random, clients[random.IntN(len(clients))], r)
		}
	}
	for _, r := range replicas {
		r.advance(h, h.head)
	}
	for _, c := range clients {
		if c.s == nil {
			c.s = replicas[0].Open("s", c.id)
		}
		c.hear(-1)
		require.Equal(t, h.at[h.head], c.state)
		c.leave()
	}
}

// act lets a client come, listen, listen in part, or go.
func act(random *rand.Rand, c *client, r *replica) {
	switch {
	case c.s == nil:
		c.s = r.Open("s", c.id)
	case random.IntN(6) == 0:
		c.leave()
	case random.IntN(4) == 0:
		c.hear(random.IntN(4))
	default:
		c.hear(-1)
	}
}
