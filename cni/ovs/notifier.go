package ovs

import (
	"sync"

	"github.com/ovn-kubernetes/libovsdb/model"

	"github.com/coe-bridge/coe-bridge/cni/ovs/vif"
	"github.com/coe-bridge/coe-bridge/cni/ovs/vswitch"
)

// root is the name for changes of Open_vSwitch, and of the rows of managers, controllers and
// bridges.
const root = ""

// ownPorts is the name for changes of the node's own ports, and of ports of pods with host ports. No port has this
// name.
const ownPorts = "/"

// nics is the name for changes of NICs in bridges. No port has this name.
const nics = "//"

// notify wakes the goroutines that wait for a row.
func (s *Switch) notify(row model.Model) {
	switch row := row.(type) {
	case *vswitch.Interface:
		s.rows.notify(row.Name)
		if isNode(row) || row.ExternalIDs[vif.KeyHostPorts] != "" {
			s.rows.notify(ownPorts)
		}
		if isNIC(row) {
			s.rows.notify(nics)
		}
	case *vswitch.OpenvSwitch, *vswitch.Manager, *vswitch.Controller, *vswitch.Bridge:
		s.rows.notify(root)
	}
}

// notifier tells listeners about changes, by name.
type notifier struct {
	mu        sync.Mutex
	listeners map[string]map[chan struct{}]bool
}

// listen returns a channel that receives after changes of name. Several changes may cause
// one notification. The caller must call stop.
func (n *notifier) listen(name string) (changed <-chan struct{}, stop func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := make(chan struct{}, 1)
	if n.listeners == nil {
		n.listeners = map[string]map[chan struct{}]bool{}
	}
	if n.listeners[name] == nil {
		n.listeners[name] = map[chan struct{}]bool{}
	}
	n.listeners[name][c] = true
	return c, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.listeners[name], c)
		if len(n.listeners[name]) == 0 {
			delete(n.listeners, name)
		}
	}
}

func (n *notifier) notify(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	wake(n.listeners[name])
}

func (n *notifier) notifyAll() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, listeners := range n.listeners {
		wake(listeners)
	}
}

func wake(listeners map[chan struct{}]bool) {
	for c := range listeners {
		select {
		case c <- struct{}{}:
		default: // a notification is already pending
		}
	}
}
