// Package podservices leads the programs of pods to the endpoints of services, in the network namespaces of the pods. So an endpoint sees
// the pod that is its client, and a network policy of the client sees the endpoint. Where a pod is not led, its packets to a service go
// on to the node: until the ports are known, and after a failure. The package knows neither the bridge nor the switch.
//
// A pod can change what is in its network namespace, and can make the work there slow. So work in a namespace reads nothing that has no
// bound, and pods are written to at the same time.
package podservices

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/coe-bridge/coe-bridge/cni/nodeports"
	"github.com/coe-bridge/coe-bridge/cni/porttables"
)

const (
	// retryAfter is the delay before a pod is tried again whose rules could not be written.
	retryAfter = 2 * time.Second
	// leadWithin is how long Lead waits, and syncWithin how long Sync does.
	leadWithin = 2 * time.Second
	syncWithin = time.Second
	// atOnce is in how many pods rules are written at the same time.
	atOnce = 32
	// maxChanges is how many changes wait for a pod before everything is written instead.
	maxChanges = 100
)

// Pods are the pods of a node, each identified by the path of its network namespace. Its methods may be called concurrently, until
// Close.
type Pods struct {
	node   netns.NsHandle
	log    *slog.Logger
	places chan struct{} // one for each pod in which rules are written
	ending context.Context
	end    context.CancelFunc

	mu    sync.Mutex
	ports *porttables.PodPorts
	known bool // the ports are known
	led   bool // pods follow them
	// sticky is set if a port with affinity was put since the last Sync.
	sticky bool
	pods   map[string]*pod
}

// pod is a pod. Pods.mu guards it.
type pod struct {
	inode inode
	// whole is set if everything must be written, and changes are those that are not written otherwise.
	whole   bool
	changes []porttables.PodChanges
	// writing is closed when nobody writes any more; nil while nobody does. late is set if Sync has waited for that in vain.
	writing chan struct{}
	late    bool
	waits   bool // for its next try after a failure
	// tried is closed after the first try.
	tried   chan struct{}
	once    sync.Once // closes it
	failure string    // was logged last
}

// New returns Pods whose ports are not known. node is the network namespace of the node.
func New(node netns.NsHandle, log *slog.Logger) *Pods {
	p := &Pods{node: node, log: log, places: make(chan struct{}, atOnce), ports: porttables.NewPodPorts(), pods: map[string]*pod{}}
	p.ending, p.end = context.WithCancel(context.Background())
	return p
}

// Close ends the work, and leaves everything in place. It does not wait for writes that the kernel has begun.
func (p *Pods) Close() { p.end() }

// Replace replaces all ports. inside has the addresses of services and pods. From then on they are known. Sync makes pods follow.
func (p *Pods) Replace(ports []nodeports.Port, inside []netip.Prefix) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ports.Replace(ports, inside)
	p.known = true
	p.sticky = p.sticky || slices.ContainsFunc(ports, func(port nodeports.Port) bool { return port.Affinity > 0 })
}

// Put adds or changes a port. Sync makes pods follow.
func (p *Pods) Put(port nodeports.Port) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ports.Put(port)
	p.sticky = p.sticky || port.Affinity > 0
}

// Remove removes a port. Sync makes pods follow.
func (p *Pods) Remove(port nodeports.Port) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ports.Remove(port)
}

// Sync makes pods follow the changed ports. If a port with affinity was put, it waits for a short time until they follow. So the node can lead
// to the port after its pods: the endpoint of a client is remembered where it was led, in its pod or on its node. Sync waits once for each write that is slow.
func (p *Pods) Sync() {
	timeout := time.After(syncWithin)
	for _, writing := range p.sync() {
		select {
		case <-writing:
		case <-p.ending.Done():
			return
		case <-timeout:
			p.mu.Lock()
			defer p.mu.Unlock()
			for _, one := range p.pods {
				one.late = one.writing != nil
			}
			return
		}
	}
}

// sync makes pods follow the changed ports, and returns those for which Sync waits.
func (p *Pods) sync() (awaited []chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	changes, whole, sticky := p.ports.Take(), p.known && !p.led, p.sticky
	p.sticky = false
	if !p.known || changes.Empty() && !whole {
		return nil
	}
	p.led = true
	p.forget()
	for path, one := range p.pods {
		if whole {
			one.whole = true
		}
		if !one.whole {
			one.changes = append(one.changes, changes)
		}
		if len(one.changes) > maxChanges {
			one.whole, one.changes = true, nil
		}
		if !one.waits {
			p.start(path, one)
		}
		if sticky && one.writing != nil && !one.late {
			awaited = append(awaited, one.writing)
		}
	}
	return awaited
}

// Follow says that pods are there. They are led from then on, until their network namespace is gone.
func (p *Pods) Follow(paths []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forget()
	for _, path := range paths {
		p.add(path)
	}
}

// Lead leads a pod, and waits for a short time until this has been tried. Without known ports it does not wait.
func (p *Pods) Lead(ctx context.Context, path string) {
	p.mu.Lock()
	p.forget()
	one := p.add(path)
	waits := one != nil && p.led
	p.mu.Unlock()
	if !waits {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, leadWithin)
	defer cancel()
	select {
	case <-one.tried:
	case <-ctx.Done():
	case <-p.ending.Done():
	}
}

// add adds a pod, unless it is there with the same network namespace. Without a namespace it returns nil.
func (p *Pods) add(path string) *pod {
	now := inodeOf(path)
	if now == (inode{}) {
		return nil
	}
	one, is := p.pods[path]
	if !is || one.inode != now {
		one = &pod{inode: now, whole: true, tried: make(chan struct{})}
		p.pods[path] = one
		if p.led {
			p.start(path, one)
		}
	}
	return one
}

// forget forgets the pods whose network namespace is gone.
func (p *Pods) forget() {
	for path := range p.pods {
		if inodeOf(path) == (inode{}) {
			delete(p.pods, path)
		}
	}
}

// start begins to write what a pod lacks, unless somebody does.
func (p *Pods) start(path string, one *pod) {
	if one.writing == nil {
		one.writing = make(chan struct{})
		go p.work(path, one)
	}
}

// rest ends what start has begun.
func (one *pod) rest() {
	close(one.writing)
	one.writing, one.late = nil, false
}

// work writes what a pod lacks, until it lacks nothing, or a write fails.
func (p *Pods) work(path string, one *pod) {
	for {
		p.mu.Lock()
		whole, changes, all := one.whole, one.changes, porttables.PodChanges{}
		if whole {
			all = p.ports.All()
		}
		if one.whole, one.changes = false, nil; !whole && len(changes) == 0 || p.pods[path] != one || p.ending.Err() != nil {
			one.rest()
			p.mu.Unlock()
			return
		}
		p.mu.Unlock()

		p.places <- struct{}{}
		err := p.inside(path, one.inode, func(ns netns.NsHandle) error {
			if whole {
				return p.ports.Create(ns, all)
			}
			for _, c := range changes {
				if err := p.ports.Change(ns, c); err != nil {
					return p.ports.Create(ns, p.all())
				}
			}
			return nil
		})
		<-p.places

		p.mu.Lock()
		one.once.Do(func() { close(one.tried) })
		p.note(path, one, err)
		if err != nil {
			one.whole, one.waits = true, true
			one.rest()
			time.AfterFunc(retryAfter, func() { p.retry(path, one) })
			p.mu.Unlock()
			return
		}
		p.mu.Unlock()
	}
}

// retry tries a pod again, if it is still there.
func (p *Pods) retry(path string, one *pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	one.waits = false
	if p.pods[path] == one && inodeOf(path) == one.inode {
		p.start(path, one)
	}
}

// all returns all ports.
func (p *Pods) all() porttables.PodChanges {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ports.All()
}

// note logs why a pod is not led, unless it was logged last.
func (p *Pods) note(path string, one *pod, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != one.failure && inodeOf(path) == one.inode {
		p.log.Warn("a pod reaches services by its node: endpoints see the address of the node", "netns", path, "err", err)
	}
	one.failure = text
}

// RemoveFrom removes the ports from pods that are led no more. inside has the addresses of services and pods.
func (p *Pods) RemoveFrom(paths []string, inside []netip.Prefix) (err error) {
	for _, path := range paths {
		if is := inodeOf(path); is != (inode{}) {
			err = errors.Join(err, p.inside(path, is, func(ns netns.NsHandle) error { return p.ports.RemoveAll(ns, inside) }))
		}
	}
	return err
}

// inside does something in the network namespace of a pod with an inode. It is never the node's: a path by the number of a process can lead
// there when the process is gone.
func (p *Pods) inside(path string, is inode, do func(netns.NsHandle) error) error {
	ns, err := netns.GetFromPath(path)
	if err != nil {
		return fmt.Errorf("open network namespace %s: %w", path, err)
	}
	var now unix.Stat_t
	switch err = unix.Fstat(int(ns), &now); {
	case err != nil:
	case ns.Equal(p.node):
		err = errors.New("it is the node's own")
	case is != inode{now.Dev, now.Ino}:
		err = errors.New("it is another one")
	default:
		return errors.Join(do(ns), ns.Close())
	}
	return errors.Join(fmt.Errorf("open network namespace %s: %w", path, err), ns.Close())
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
