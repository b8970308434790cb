// Package podservices leads the programs of pods to the endpoints of services, in the network namespaces of the pods. So an endpoint sees
// the pod that is its client, and a network policy of the client sees the endpoint. Where a pod is not led, its packets to a service go
// on to the node. The package knows neither the bridge nor the switch.
//
// A pod can change what is in its network namespace, and can make the work there slow. It harms only itself: each pod has a goroutine.
package podservices

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"sync"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/coe-bridge/coe-bridge/cni/nodeports"
)

// retryAfter is the delay before a pod is tried again whose rules could not be written.
const retryAfter = 2 * time.Second

// Pod is a pod of the node.
type Pod struct {
	// Netns is the path of its network namespace.
	Netns string
	// Address is its IPv4 address.
	Address netip.Addr
}

// Pods are the pods of a node. Its methods may be called concurrently, until Close.
type Pods struct {
	node    netns.NsHandle
	log     *slog.Logger
	ending  chan struct{} // closed by Close
	running sync.WaitGroup

	mu     sync.Mutex
	inside []netip.Prefix            // see nodeports.Place
	ports  map[string]nodeports.Port // by String
	pods   map[Pod]*pod
}

// New returns Pods without ports. node is the network namespace of the node.
func New(node netns.NsHandle, log *slog.Logger) *Pods {
	return &Pods{node: node, log: log, ending: make(chan struct{}), ports: map[string]nodeports.Port{}, pods: map[Pod]*pod{}}
}

// Close ends the work, and leaves everything in place.
func (p *Pods) Close() {
	close(p.ending)
	p.running.Wait()
}

// Put adds or changes a port, which is Own and not local. It identifies itself by String.
func (p *Pods) Put(port nodeports.Port) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ports[port.String()] = port
	p.change(port)
}

// Remove removes a port.
func (p *Pods) Remove(port nodeports.Port) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, is := p.ports[port.String()]; is {
		delete(p.ports, port.String())
		p.change(port)
	}
}

// Replace replaces all ports.
func (p *Pods) Replace(ports []nodeports.Port) {
	p.mu.Lock()
	defer p.mu.Unlock()
	had := p.ports
	p.ports = map[string]nodeports.Port{}
	for _, port := range ports {
		p.ports[port.String()] = port
		p.change(port)
	}
	for name, port := range had {
		if _, stays := p.ports[name]; !stays {
			p.change(port)
		}
	}
}

// change notes a changed port for all pods.
func (p *Pods) change(port nodeports.Port) {
	for _, one := range p.pods {
		one.changed[port.String()] = port
		one.wake()
	}
}

// Follow says which pods there are. inside has the addresses of pods and services. A pod that is gone is led no more, if its network
// namespace is still there.
func (p *Pods) Follow(all []Pod, inside []netip.Prefix) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inside = inside
	are := map[Pod]bool{}
	for _, of := range all {
		are[of] = true
		p.add(of)
	}
	for of, one := range p.pods {
		if !are[of] {
			delete(p.pods, of)
			close(one.gone)
		}
	}
}

// Lead leads the programs of a pod, and waits until they are.
func (p *Pods) Lead(ctx context.Context, of Pod) error {
	p.mu.Lock()
	one := p.add(of)
	p.mu.Unlock()
	select {
	case <-one.tried:
		p.mu.Lock()
		defer p.mu.Unlock()
		return one.failure
	case <-one.gone:
		return errors.New("the pod is gone")
	case <-ctx.Done():
		return ctx.Err()
	}
}

// add adds a pod, unless it is there with the same network namespace.
func (p *Pods) add(of Pod) *pod {
	one, is := p.pods[of]
	now := inodeOf(of.Netns)
	if is && one.inode == now {
		return one
	}
	if is {
		close(one.gone)
	}
	one = &pod{
		Pod: of, inode: now, changed: maps.Clone(p.ports), due: make(chan struct{}, 1), gone: make(chan struct{}), tried: make(chan struct{}),
	}
	p.pods[of] = one
	one.wake()
	p.running.Go(func() { p.serve(one) })
	return one
}

// pod is a pod with its goroutine.
type pod struct {
	Pod
	inode inode
	due   chan struct{} // asks for a Sync
	gone  chan struct{} // closed when the pod is gone
	tried chan struct{} // closed after the first attempt
	once  sync.Once     // closes it

	// changed are the ports that have changed since the goroutine took them, by String, and failure is why the last attempt has failed.
	// Pods.mu guards both.
	changed map[string]nodeports.Port
	failure error
}

func (p *pod) wake() {
	select {
	case p.due <- struct{}{}:
	default:
	}
}

// serve leads a pod until it is gone.
func (p *Pods) serve(one *pod) {
	ns, err := p.open(one)
	if err != nil {
		p.tried(one, err)
		select {
		case <-p.ending:
		case <-one.gone:
		}
		return
	}
	defer func() { _ = ns.Close() }()
	table := nodeports.New(nodeports.Config{Netns: ns, OfPod: true})
	var retry <-chan time.Time
	for {
		select {
		case <-p.ending:
			return
		case <-one.gone:
			p.leave(one, table)
			return
		case <-one.due:
		case <-retry:
		}
		err := p.sync(one, table)
		p.tried(one, err)
		if retry = nil; err != nil {
			retry = time.After(retryAfter)
		}
	}
}

// open opens the network namespace of a pod, which is never the node's: a path by the number of a process can lead there when the process
// is gone.
func (p *Pods) open(one *pod) (netns.NsHandle, error) {
	ns, err := netns.GetFromPath(one.Netns)
	if err == nil && ns.Equal(p.node) {
		err = errors.Join(errors.New("it is the node's own"), ns.Close())
	}
	if err != nil {
		return ns, fmt.Errorf("open network namespace %s: %w", one.Netns, err)
	}
	return ns, nil
}

// sync writes the changed ports of a pod.
func (p *Pods) sync(one *pod, table *nodeports.Table) error {
	p.mu.Lock()
	inside := p.inside
	for name, port := range one.changed {
		if now, is := p.ports[name]; is {
			table.Put(now)
		} else {
			table.Remove(port)
		}
	}
	clear(one.changed)
	p.mu.Unlock()
	_, err := table.Sync(placeOf(one, inside), nodeports.Hosts{}, nil)
	return err
}

func placeOf(one *pod, inside []netip.Prefix) nodeports.Place {
	return nodeports.Place{IPv4: nodeports.Addresses{Edge: one.Address}, Inside: inside, Balances: true}
}

// leave removes the rules of a pod whose network namespace is still there.
func (p *Pods) leave(one *pod, table *nodeports.Table) {
	if now := inodeOf(one.Netns); now != one.inode || now == (inode{}) {
		return
	}
	table.Replace(nil)
	if _, err := table.Sync(placeOf(one, nil), nodeports.Hosts{}, nil); err != nil {
		p.log.Debug("could not remove the rules for services from a network namespace", "netns", one.Netns, "err", err)
	}
}

// tried notes how an attempt has ended.
func (p *Pods) tried(one *pod, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil && (one.failure == nil || one.failure.Error() != err.Error()) {
		p.log.Warn("a pod reaches services by its node, whose address the endpoints see", "netns", one.Netns, "address", one.Address, "err", err)
	}
	one.failure = err
	one.once.Do(func() { close(one.tried) })
}

// inode identifies a network namespace while it exists.
type inode struct{ device, number uint64 }

// inodeOf returns the inode at a path; zero if there is none.
func inodeOf(path string) inode {
	var is unix.Stat_t
	if unix.Stat(path, &is) != nil {
		return inode{}
	}
	return inode{is.Dev, is.Ino}
}
