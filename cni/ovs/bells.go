package ovs

import (
	"sync"

	"github.com/ovn-kubernetes/libovsdb/model"

	"github.com/coe-bridge/coe-bridge/cni/ovs/vswitch"
)

// root is the name under which waits who waits for the row of Open_vSwitch, or for those
// of who manages and programs the switch.
const root = ""

// ring has those look again who wait for a row.
func (s *Switch) ring(row model.Model) {
	switch row := row.(type) {
	case *vswitch.Interface:
		s.waiting.ring(row.Name)
	case *vswitch.OpenvSwitch, *vswitch.Manager, *vswitch.Controller, *vswitch.Bridge:
		s.waiting.ring(root)
	}
}

// bells wake who waits for something to change, by its name.
type bells struct {
	mu    sync.Mutex
	heard map[string]map[chan struct{}]bool
}

// listen returns a channel that receives when name has changed, perhaps several times.
func (b *bells) listen(name string) (heard <-chan struct{}, stop func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := make(chan struct{}, 1)
	if b.heard == nil {
		b.heard = map[string]map[chan struct{}]bool{}
	}
	if b.heard[name] == nil {
		b.heard[name] = map[chan struct{}]bool{}
	}
	b.heard[name][c] = true
	return c, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.heard[name], c)
		if len(b.heard[name]) == 0 {
			delete(b.heard, name)
		}
	}
}

func (b *bells) ring(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	ringThese(b.heard[name])
}

func (b *bells) ringAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, these := range b.heard {
		ringThese(these)
	}
}

func ringThese(these map[chan struct{}]bool) {
	for c := range these {
		select {
		case c <- struct{}{}:
		default: // it is awake already
		}
	}
}
