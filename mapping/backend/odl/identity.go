package odl

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/codec"
	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/controller"
)

// topologies is the list with the identity of the controller's datastore, which the backend
// writes once: the only node of the topology that is named like our mark. A datastore that was
// emptied, or restored from a backup, has another identity or none. Then the flows that
// switches have from the former datastore are obsolete (decision 28).
var topologies = codec.List{Module: "network-topology", Container: "network-topology", Name: "topology", Fresh: func() codec.Entry { return &topology{} }}

// topology is an entry of topologies. It keeps only the key and the nodes, because entries
// of other writers may have any length.
type topology struct {
	ID    string         `json:"topology-id"`
	Nodes []topologyNode `json:"node,omitempty"`
}

type topologyNode struct {
	ID string `json:"node-id"`
}

func (e *topology) Key() string      { return e.ID }
func (e *topology) Normalize()       {}
func (e *topology) Own() codec.Entry { o := *e; o.Nodes = slices.Clone(e.Nodes); return &o }
func (e *topology) Keep(codec.Entry) {}

// identityLength is the number of characters of an identity: 60 bits.
const identityLength = 12

// readIdentity reads the identity of the datastore; empty if it has none. If another writer
// has added nodes or removed ours, the result is another identity.
func readIdentity(ctx context.Context, s *controller.Session) (string, error) {
	found, err := s.Look(ctx, &topologies, []string{codec.Mark})
	if err != nil {
		return "", fmt.Errorf("read the datastore's identity: %w", err)
	}
	t, ok := found[codec.Mark].(*topology)
	if !ok {
		return "", nil
	}
	if len(t.Nodes) == 0 {
		return codec.Mark, nil
	}
	slices.SortFunc(t.Nodes, func(a, b topologyNode) int { return strings.Compare(a.ID, b.ID) })
	return t.Nodes[0].ID, nil
}

// identify gives the datastore an identity if it has none, before any other write. It fails if
// another writer was faster; the next call then reads that identity.
func (w *write) identify(ctx context.Context) error {
	if w.mirror.Identity != "" {
		return nil
	}
	identity := strings.ToLower(rand.Text()[:identityLength])
	if err := w.Post(ctx, &topologies, &topology{codec.Mark, []topologyNode{{identity}}}); err != nil {
		return fmt.Errorf("write the identity of the datastore: %w", err)
	}
	w.backend.log.Info("gave OpenDaylight's datastore an identity", "identity", identity)
	w.mirror.Identity = identity
	w.backend.identity.Store(&identity)
	return nil
}

// Identity implements reconcile.Observer. It returns the identity of the controller's
// datastore that was last read or written; empty if unknown.
func (b *Backend) Identity() string {
	if identity := b.identity.Load(); identity != nil {
		return *identity
	}
	return ""
}
