package ovn

import (
	"sync"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/ovsdb"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// A pipe holds up to pipeBatches batches of pipeBatch elements. So it holds a good part of the largest tables, and the server
// rarely waits.
const pipeBatch, pipeBatches = 256, 128

// pipe passes what a source shows to another goroutine, in order.
type pipe struct {
	batches chan []shown

	mu     sync.Mutex
	next   []shown // the next batch
	closed bool
}

// shown is one thing that a source shows: a row of ours, a link, a row that may be ours, or the end of a table.
type shown struct {
	table *ovsdb.Table // of a row of ours; nil for other things
	uuid  string
	head  netvirt.Key
	// former: it is a switch of the other layout. outdated: it is of an earlier release; the sum is that of the renewed row.
	former, outdated bool

	sum     ovsdb.Sum
	objects []netvirt.Object
	port    string // the name of a router port of ours
	others  bool   // it is a router of the bridge of another owner; table is nil

	link  ovsdb.Link
	stray ovsdb.Row
	read  *ovsdb.Table
}

func newPipe() *pipe { return &pipe{batches: make(chan []shown, pipeBatches)} }

// send passes one thing on. After close it does nothing.
func (p *pipe) send(one shown) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.next = append(p.next, one)
	if len(p.next) == pipeBatch || one.read != nil {
		p.flush()
	}
}

// close ends the batches. It passes on what is left.
func (p *pipe) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.flush()
	p.closed = true
	close(p.batches)
}

func (p *pipe) flush() {
	p.batches <- p.next
	p.next = make([]shown, 0, pipeBatch)
}
