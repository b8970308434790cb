package odlports

import (
	"context"
	"errors"
	"io/fs"
	"net/netip"
	"time"

	"github.com/coe-bridge/coe-bridge/cni/openflow"
)

// Port is a port of the node itself, or of a pod.
type Port struct {
	Name, Interface string
	// Container is that of the pod; empty for a port of the node.
	Container string
	Addresses []netip.Addr
	// Replaced is set if the port has been replaced: no ADD awaits it.
	Replaced bool
}

// key identifies a port. Another sandbox of a pod has another port of the same name.
func (p Port) key() string { return p.Name + " " + p.Container }

const (
	// removedWithin is how long OpenDaylight may take to remove the flows of a port before the new one is added all the same.
	removedWithin = 5 * time.Second
	// removedEvery is the interval of the looks at them.
	removedEvery = 500 * time.Millisecond
)

// lacking is what a port of a stage lacks.
var lacking = map[openflow.Stage]string{
	openflow.Unknown: "its flow in table 0",
	openflow.Tagged:  "a flow in table 51 that leads to it",
	openflow.Led:     "a flow in table 36 that leads to it",
}

// Replace replaces a port of the node that OpenDaylight does not learn of, or to which it leads no packets of its elan-instance: ports
// of the node are members of one. It replaces a port of the node or of a pod to which it leads no packets from other switches. ADDs look
// at what else a pod needs, until its port is replaced. It asks for a new connection if OpenDaylight learns of no port at all. It replaces one port at most, so that OpenDaylight does not get many changes at once. It replaces none while
// OpenDaylight does not program the switch, or while none of the ports has what the port lacks. It replaces none without the
// socket of the switch, which is not there while the switch starts: then the ports are looked at again later.
func (p *Ports) Replace(ctx context.Context, ports []Port) (changed bool, err error) {
	if p.cfg.Programmed == nil {
		return false, nil
	}
	numbers, addresses := p.numbers(ctx, ports)
	known, err := p.known(ctx, addresses)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	now := time.Now()
	p.unprogrammed.keep(ports, now)
	switch {
	case err == nil && len(known) == 0:
		p.unprogrammed.restart()
		p.overlooked.restart()
		p.cfg.Switch.Reconnect(false)
	case known != nil:
		learns, due := p.overlooked.look(numbers, known, now)
		if learns || due {
			p.cfg.Switch.Reconnect(due)
		}
	}
	most, withoutRoutes, tried := furthest(numbers, known), err != nil, false
	for _, port := range ports {
		number, opened := numbers[port.Name]
		at := stageOf(port, known[number], most)
		if !opened || at == unseen || withoutRoutes && (port.Container != "" || at >= openflow.Complete) {
			continue
		}
		if !p.unprogrammed.see(port.key(), at, now) || tried {
			continue
		}
		released, failed := p.renew(ctx, port, number, at)
		changed, tried, err = released, true, errors.Join(err, failed)
	}
	return changed, err
}

// renew replaces a port that is overdue. It counts the replacement if the switch has released the port, also if the replacement failed
// then. The port of a pod that was replaced replacedMost times is spent instead.
func (p *Ports) renew(ctx context.Context, port Port, number uint32, at openflow.Stage) (released bool, err error) {
	log := p.cfg.Log.With("port", port.Name, "interface", port.Interface, "lacks", lacking[at])
	if port.Container != "" && p.unprogrammed.spend(port.key()) {
		log.Error("OpenDaylight does not program the port of a pod, and the port is not replaced again; check that OpenDaylight has tunnels to this node, then delete the pod")
		return false, nil
	}
	log.Warn("OpenDaylight has not programmed a port; the port is replaced")
	released, err = p.replace(ctx, port.Name, number)
	p.unprogrammed.count(port.key(), released)
	if released { // the new port is not a second one
		p.overlooked.restart()
	}
	return released, err
}

// numbers returns the OpenFlow numbers of the ports that the switch has, and the addresses of these.
func (p *Ports) numbers(ctx context.Context, ports []Port) (map[string]uint32, openflow.Addresses) {
	ctx, cancel := context.WithTimeout(ctx, flowsTimeout)
	defer cancel()
	numbers, addresses := map[string]uint32{}, openflow.Addresses{}
	for _, port := range ports {
		if number, err := p.cfg.Switch.Number(ctx, port.Name); err == nil {
			numbers[port.Name], addresses[number] = number, port.Addresses
		}
	}
	return numbers, addresses
}

// furthest returns the last stage that one of the ports has reached. Ports of tunnels do not count: they have a tag before OpenDaylight
// programs other ports.
func furthest(numbers map[string]uint32, known map[uint32]openflow.Stage) (most openflow.Stage) {
	for _, number := range numbers {
		most = max(most, known[number])
	}
	return most
}

// stageOf returns the stage of a port that OpenDaylight sees at a stage, Complete at most. most is that of the port that is furthest. A port that
// lacks what no port has counts as unseen, and so does one of a pod that an ADD possibly awaits.
func stageOf(port Port, at, most openflow.Stage) openflow.Stage {
	awaited := port.Container != "" && !port.Replaced
	switch {
	case at >= openflow.Complete:
		return openflow.Complete
	case at == openflow.Led && most < openflow.Reached, most <= at, at < openflow.Led && awaited:
		return unseen
	}
	return at
}

// flowsTimeout bounds the question for flows: a switch that hangs answers its database and no question, and the node's other work waits.
const flowsTimeout = time.Second

// known returns the stages of the ports that OpenDaylight knows, as Config.Programmed does; none if the agent could not add a port again.
func (p *Ports) known(ctx context.Context, addresses openflow.Addresses) (map[uint32]openflow.Stage, error) {
	if p.cfg.Switch.AwaitsFlows() != nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, flowsTimeout)
	defer cancel()
	return p.cfg.Programmed(ctx, addresses)
}

// replace replaces a port by a new one, as Switch.Replace does. Netvirt knows the former port, so the new one comes after the flows of the former: OpenDaylight can lose
// flows of a port that returns while it removes them.
func (p *Ports) replace(ctx context.Context, name string, former uint32) (released bool, err error) {
	if err := p.cfg.Switch.AwaitsFlows(); err != nil { // else OpenDaylight would not see the new port
		return false, err
	}
	return p.cfg.Switch.Replace(ctx, name, former, func(ctx context.Context) { p.awaitRemoved(ctx, former) })
}

// awaitRemoved waits until OpenDaylight no longer knows a port, for removedWithin at most.
func (p *Ports) awaitRemoved(ctx context.Context, number uint32) {
	ctx, cancel := context.WithTimeout(ctx, removedWithin)
	defer cancel()
	for {
		known, err := p.known(ctx, nil)
		if _, stays := known[number]; err == nil && len(known) > 0 && !stays {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(removedEvery):
		}
	}
}
