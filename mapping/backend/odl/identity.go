package odl

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
)

// topologies is the list in which the controller's datastore is given a name, once: the only
// node of a topology that is called as all that is ours is marked. A datastore that is empty, or
// was put back from a backup of before, has not that name any more: what switches were programmed
// with out of the former one is of no use to it, and in its way (docs/decisions/0028).
var topologies = list{"network-topology", "network-topology", "topology", func() entry { return &topology{} }}

// topology is an entry of it. That of another may be of any length: no more of it is kept.
type topology struct {
	ID    string         `json:"topology-id"`
	Nodes []topologyNode `json:"node,omitempty"`
}

type topologyNode struct {
	ID string `json:"node-id"`
}

func (e *topology) key() string { return e.ID }
func (e *topology) tidy()       {}
func (e *topology) own() entry  { o := *e; o.Nodes = slices.Clone(e.Nodes); return &o }
func (e *topology) keep(entry)  {}

// identityLength is how many letters make an identity: 60 bits.
const identityLength = 12

// readIdentity reads the name that the datastore was given; empty where it has none. Whoever has
// put anything else there has named it so.
func (s *session) readIdentity(ctx context.Context) (string, error) {
	found, err := s.look(ctx, &topologies, []string{mark})
	if err != nil {
		return "", fmt.Errorf("read the datastore's identity: %w", err)
	}
	t, ok := found[mark].(*topology)
	if !ok {
		return "", nil
	}
	if len(t.Nodes) == 0 {
		return mark, nil
	}
	slices.SortFunc(t.Nodes, func(a, b topologyNode) int { return strings.Compare(a.ID, b.ID) })
	return t.Nodes[0].ID, nil
}

// identify gives the datastore a name, where it has none: before anything else is written. If
// somebody else was faster that fails, and is read then.
func (w *write) identify(ctx context.Context) error {
	if w.mirror.identity != "" {
		return nil
	}
	identity := strings.ToLower(rand.Text()[:identityLength])
	body, err := json.Marshal(map[string][]topology{topologies.module + ":" + topologies.name: {{mark, []topologyNode{{identity}}}}})
	if err == nil {
		err = w.send(ctx, w.request(http.MethodPost, w.dialect.container(&topologies), body), nil)
	}
	if err != nil {
		return fmt.Errorf("give the datastore an identity: %w", err)
	}
	w.backend.log.Info("OpenDaylight's datastore has no name yet: it gets one", "identity", identity)
	w.mirror.identity = identity
	w.backend.identity.Store(&identity)
	return nil
}

// Identity implements what reconcile.Observer says: the name of the controller's datastore, as
// it was read or given last.
func (b *Backend) Identity() string {
	if is := b.identity.Load(); is != nil {
		return *is
	}
	return ""
}
