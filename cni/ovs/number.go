package ovs

import (
	"math/rand/v2"
	"sync"

	"github.com/coe-bridge/coe-bridge/cni/ovs/session"
	"github.com/coe-bridge/coe-bridge/cni/ovs/vswitch"
)

// OpenFlow numbers that Open vSwitch leaves to controllers: it chooses none of them itself.
const firstNumber, lastNumber = 32768, 65279

// numbers has the OpenFlow numbers of ports that OpenDaylight still knows, although the switch does not have them any more.
//
// OpenDaylight does not notice that a port is gone when its node is rebooted: it keeps the ports of a switch that it does not reach. If the port
// returns with another number, OpenDaylight deletes the flows of the former number, which another port can have by then. Then OpenDaylight
// handles no other port of any switch for ten seconds. With its former number the port returns as after a restart of the switch.
type numbers struct {
	mu     sync.Mutex
	former map[string]int // by name
}

// keep notes the number of a port that is removed. OpenDaylight does not learn of the removal if the switch has not opened the port,
// unless the port is being replaced.
func (n *numbers) keep(row *vswitch.Interface) {
	if row.OfportRequest == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if row.Ofport != nil && *row.Ofport > 0 || row.Type == releasedType {
		delete(n.former, row.Name)
		return
	}
	if n.former == nil {
		n.former = map[string]int{}
	}
	n.former[row.Name] = *row.OfportRequest
}

// next returns the number for a new port: its former one if OpenDaylight still knows that, otherwise one that no port has.
func (n *numbers) next(one *session.Session, name string) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if number, known := n.former[name]; known {
		return number, nil
	}
	for {
		number := firstNumber + rand.IntN(lastNumber-firstNumber+1)
		taken, err := requested(one, number)
		if err != nil || !taken && !n.kept(number) {
			return number, err
		}
	}
}

// kept reports whether a number is kept for a port. n.mu is held.
func (n *numbers) kept(number int) bool {
	for _, kept := range n.former {
		if kept == number {
			return true
		}
	}
	return false
}

// requested reports whether a port has requested an OpenFlow number.
func requested(one *session.Session, number int) (bool, error) {
	var rows []*vswitch.Interface
	err := one.Where(func(row *vswitch.Interface) bool { return row.OfportRequest != nil && *row.OfportRequest == number }, &rows)
	return len(rows) > 0, err
}
