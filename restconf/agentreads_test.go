package restconf

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/restconf/access"
	"github.com/coe-bridge/coe-bridge/restconf/tree"
	"github.com/coe-bridge/coe-bridge/yang"
)

// agentOf lets every request in as the agent of a node.
type agentOf string

func (node agentOf) Authenticate(*http.Request) (access.Identity, error) {
	return access.Identity{Name: string(node), Role: access.Node, Node: string(node)}, nil
}

// readers are Agents that may read all entries.
type readers struct{}

func (readers) MayFollow(string, string) bool                     { return false }
func (readers) MayRead(string, *yang.Node, []string) bool         { return true }
func (readers) MayWrite(string, tree.Op, *yang.Data) bool         { return false }
func (readers) Admit(context.Context, string, []*yang.Data) error { return nil }

// traces is a Source of one pod that notes what it is asked, and by how many at once.
type traces struct {
	fixed
	running, most atomic.Int32
	mu            sync.Mutex
	asked         []tree.Asked
}

func (s *traces) Get(ctx context.Context, asked tree.Asked) (*yang.Data, error) {
	s.mu.Lock()
	s.asked = append(s.asked, asked)
	s.mu.Unlock()
	if now := s.running.Add(1); now > s.most.Load() {
		s.most.Store(now)
	}
	defer s.running.Add(-1)
	select {
	case <-ctx.Done():
	case <-time.After(20 * time.Millisecond): // for others to come
	}
	return s.fixed.Get(ctx, asked)
}

// TestReadsOfAnAgent: the source is asked once for each GET, for no more than the entry
// that the agent reads, and for one GET of an agent at a time. The cost of an answer
// grows with the namespace.
func TestReadsOfAnAgent(t *testing.T) {
	source := &traces{}
	b := newBed(t, func(c *Config) {
		c.Auth, c.Agents = agentOf("worker"), readers{}
		source.schema = c.Schema
		source.operational = `{"coe-status:pods":{"namespace":[{"name":"shop","pod":[{"uid":"` + uid1 + `"}]}]}}`
		c.ReadOnly["coe-status:pods"] = tree.ReadOnly{Source: source}
	})
	var requests sync.WaitGroup
	var answers [8]answer
	for i := range answers {
		requests.Go(func() {
			answers[i] = b.do(http.MethodGet, "/rests/data/coe-status:pods/namespace=shop/pod="+uid1, "")
		})
	}
	requests.Wait()
	for _, got := range answers {
		require.Equal(t, http.StatusOK, got.status, got.body)
	}
	require.EqualValues(t, 1, source.most.Load())
	require.Len(t, source.asked, 8)
	for _, asked := range source.asked {
		require.Equal(t, []string{"shop"}, asked.Entry)
		require.Equal(t, []string{uid1}, asked.Within)
	}
}
