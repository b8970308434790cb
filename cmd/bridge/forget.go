package bridge

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/coe-bridge/coe-bridge/restconf/datastore"
	"github.com/coe-bridge/coe-bridge/yang"
)

// forgetAgain is the pause after a failure to delete reports.
const forgetAgain = 10 * time.Second

// goneNodes are deleted nodes whose agents have reported a chassis. The leader deletes these reports: nobody else knows that the
// nodes are gone, and another node may get such an address.
type goneNodes struct {
	mu    sync.Mutex
	nodes map[netip.Addr]bool
	due   chan struct{} // holds one value while there are nodes
}

func newGoneNodes() *goneNodes {
	return &goneNodes{nodes: map[netip.Addr]bool{}, due: make(chan struct{}, 1)}
}

// note notes that a node is gone. It does not wait.
func (g *goneNodes) note(node netip.Addr) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.nodes[node] = true
	select {
	case g.due <- struct{}{}:
	default:
	}
}

// take returns the nodes, and forgets them.
func (g *goneNodes) take() map[netip.Addr]bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	taken := g.nodes
	g.nodes = map[netip.Addr]bool{}
	return taken
}

// forgetGone deletes the reports of nodes that are gone, until ctx is done.
func (b *Bridge) forgetGone(ctx context.Context, gone *goneNodes) {
	reports := b.schema.Module("coe-agent").Child("chassis").Child("coe-agent", "node")
	for {
		select {
		case <-ctx.Done():
			return
		case <-gone.due:
		}
		nodes := gone.take()
		err := b.data.Update(ctx, func(tx *datastore.Tx) error { b.deleteReports(tx, reports, nodes); return nil })
		if err == nil || ctx.Err() != nil {
			continue
		}
		b.log.Warn("delete what agents of deleted nodes have reported", "nodes", len(nodes), "err", err)
		for node := range nodes {
			gone.note(node)
		}
		wait(ctx, forgetAgain)
	}
}

// deleteReports deletes the reports of nodes. A node may have come back since.
func (b *Bridge) deleteReports(tx *datastore.Tx, reports *yang.Node, nodes map[netip.Addr]bool) {
	known := b.store.Nodes()
	for node := range nodes {
		if key := []string{node.String()}; known[node] == nil && tx.Get(reports, key...) != nil {
			tx.Delete(reports, key)
		}
	}
}
