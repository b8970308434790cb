// Package podservices leads the programs of pods to the endpoints of services, in the network namespaces of the pods. So an endpoint sees
// the pod that is its client, and a network policy of the client sees the endpoint. Where a pod is not led, its packets to a service go
// on to the node: until the ports are known, and after a failure. The package knows neither the bridge nor the switch.
//
// A pod can change what is in its network namespace, and can make the work there slow. So work in a namespace reads nothing that has no
// bound, and the pods do not wait for each other.
package podservices

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/coe-bridge/coe-bridge/cni/nodeports"
)

const (
	// retryAfter is the delay before a pod is tried again whose rules could not be written.
	retryAfter = 2 * time.Second
	// atOnce is in how many pods rules are written at the same time.
	atOnce = 8
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
	ports *nodeports.PodPorts
	known bool // the ports are known
	pods  map[string]*pod
}

// pod is a pod. Pods.mu guards it.
type pod struct {
	inode inode
	// whole is set if everything must be written, and changes are those that are not written otherwise.
	whole   bool
	changes []nodeports.PodChanges
	// idle is nil, or closed when there is nothing more to do.
	idle    chan struct{}
	failure string // was logged last
}

// New returns Pods whose ports are not known. node is the network namespace of the node.
func New(node netns.NsHandle, log *slog.Logger) *Pods {
	p := &Pods{node: node, log: log, places: make(chan struct{}, atOnce), ports: nodeports.NewPodPorts(), pods: map[string]*pod{}}
	p.ending, p.end = context.WithCancel(context.Background())
	return p
}

// Close ends the work, and leaves everything in place. It does not wait for writes that the kernel has begun.
func (p *Pods) Close() { p.end() }

// Replace replaces all ports. From then on they are known.
func (p *Pods) Replace(ports []nodeports.Port) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ports.Replace(ports)
	first := !p.known
	p.known = true
	p.follow(first)
}

// Put adds or changes a port.
func (p *Pods) Put(port nodeports.Port) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ports.Put(port)
	p.follow(false)
}

// Remove removes a port.
func (p *Pods) Remove(port nodeports.Port) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ports.Remove(port)
	p.follow(false)
}

// follow makes pods follow the changed ports. whole is set if pods have unknown ones.
func (p *Pods) follow(whole bool) {
	changes := p.ports.Take()
	if !p.known || changes.Empty() && !whole {
		return
	}
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
		p.start(path, one)
	}
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

// Lead leads a pod, and waits until it has been tried, or the context ends. Without known ports it does not wait.
func (p *Pods) Lead(ctx context.Context, path string) {
	p.mu.Lock()
	p.forget()
	idle := p.add(path).idle
	p.mu.Unlock()
	if idle == nil {
		return
	}
	select {
	case <-idle:
	case <-ctx.Done():
	case <-p.ending.Done():
	}
}

// add adds a pod, unless it is there with the same network namespace.
func (p *Pods) add(path string) *pod {
	now := inodeOf(path)
	one, is := p.pods[path]
	if !is || one.inode != now {
		one = &pod{inode: now, whole: true}
		p.pods[path] = one
		if p.known {
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
	if one.idle == nil {
		one.idle = make(chan struct{})
		go p.work(path, one)
	}
}

// work writes what a pod lacks, until it lacks nothing, or a write fails.
func (p *Pods) work(path string, one *pod) {
	for {
		p.mu.Lock()
		whole, changes, all := one.whole, one.changes, nodeports.PodChanges{}
		if whole {
			all = p.ports.All()
		}
		if one.whole, one.changes = false, nil; !whole && len(changes) == 0 || p.pods[path] != one || p.ending.Err() != nil {
			p.rest(one)
			p.mu.Unlock()
			return
		}
		p.mu.Unlock()

		p.places <- struct{}{}
		err := p.inside(path, func(ns netns.NsHandle) error {
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
		p.note(path, one, err)
		if err != nil {
			one.whole = true
			p.rest(one)
			time.AfterFunc(retryAfter, func() { p.retry(path, one) })
			p.mu.Unlock()
			return
		}
		p.mu.Unlock()
	}
}

// rest notes that nobody writes in a pod.
func (p *Pods) rest(one *pod) {
	close(one.idle)
	one.idle = nil
}

// retry tries a pod again, if it is still there.
func (p *Pods) retry(path string, one *pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pods[path] == one && inodeOf(path) == one.inode && p.ending.Err() == nil {
		p.start(path, one)
	}
}

// all returns all ports.
func (p *Pods) all() nodeports.PodChanges {
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

// RemoveFrom removes the ports from pods that are led no more.
func (p *Pods) RemoveFrom(paths []string) (err error) {
	for _, path := range paths {
		if inodeOf(path) != (inode{}) {
			err = errors.Join(err, p.inside(path, p.ports.RemoveAll))
		}
	}
	return err
}

// inside does something in the network namespace of a pod, which is never the node's: a path by the number of a process can lead there when the
// process is gone.
func (p *Pods) inside(path string, do func(netns.NsHandle) error) error {
	ns, err := netns.GetFromPath(path)
	if err != nil {
		return fmt.Errorf("open network namespace %s: %w", path, err)
	}
	if ns.Equal(p.node) {
		err = fmt.Errorf("open network namespace %s: it is the node's own", path)
	} else {
		err = do(ns)
	}
	return errors.Join(err, ns.Close())
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
