// Package agents follows the streams of nodes like the nodes' agents: it applies a group of events as
// a whole, and continues after the last group when the connection broke, or at another replica. It
// attaches no pods.
package agents

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"
)

const (
	// again is the delay before a stream that has ended is opened again.
	again = 100 * time.Millisecond
	// poll is the interval of the checks of Await.
	poll = 5 * time.Millisecond
)

// Record is an interface in a stream.
type Record struct {
	PodUID       string     `json:"pod-uid"`
	InterfaceUID string     `json:"interface-uid"`
	Namespace    string     `json:"namespace"`
	Pod          string     `json:"pod"`
	Name         string     `json:"name"`
	Node         netip.Addr `json:"node"`
	MAC          string     `json:"mac-address"`
	Addresses    []Address  `json:"address"`
	Confirmed    bool       `json:"confirmed"`
}

// Address is an address of an interface.
type Address struct {
	IP netip.Addr `json:"ip"`
}

// Place is the node's own place in a stream.
type Place struct {
	Node     netip.Addr     `json:"node"`
	Name     string         `json:"name"`
	MAC      string         `json:"mac-address"`
	Address  netip.Addr     `json:"address"`
	Length   int            `json:"prefix-length"`
	Gateway  netip.Addr     `json:"gateway"`
	Service  netip.Addr     `json:"service-address"`
	Edge     netip.Addr     `json:"edge-address"`
	Pods     []netip.Prefix `json:"pod-network"`
	Services []netip.Prefix `json:"service-network"`
}

// Streams are the streams of some nodes. At and Stop must not be called concurrently; the other methods
// may.
type Streams struct {
	nodes []*node
	at    string // the URL of the bridge; empty for none
	leave context.CancelFunc
	done  sync.WaitGroup
}

// New returns the streams of nodes, which follow no bridge yet. It calls observe, if not nil, with each
// received record, in one goroutine per node.
func New(nodes []netip.Addr, observe func(Record)) *Streams {
	if observe == nil {
		observe = func(Record) {}
	}
	s := &Streams{leave: func() {}}
	for _, address := range nodes {
		s.nodes = append(s.nodes, &node{address: address, observe: observe, records: map[string]Record{}})
	}
	return s
}

// At follows the streams at the bridge with a URL, until Stop or the next At. Each stream continues
// where it was at the former bridge.
func (s *Streams) At(url string) {
	if url == s.at {
		return
	}
	s.Stop()
	ctx, cancel := context.WithCancel(context.Background())
	s.at, s.leave = url, cancel
	client := newClient(url, len(s.nodes))
	for _, n := range s.nodes {
		s.done.Go(func() { n.run(ctx, client) })
	}
}

// Stop ends all streams. The received data stays.
func (s *Streams) Stop() {
	s.leave()
	s.done.Wait()
	s.at = ""
}

// Await waits until each stream has delivered everything.
func (s *Streams) Await(ctx context.Context, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		err := s.complete()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-time.After(poll):
		}
	}
}

func (s *Streams) complete() error {
	var errs []error
	for _, n := range s.nodes {
		if told, err := n.hasTold(); !told {
			errs = append(errs, fmt.Errorf("the stream of %s has not told what there is: %w", n.address, err))
		}
	}
	return errors.Join(errs...)
}

// Records returns the current records of all streams.
func (s *Streams) Records() []Record {
	var all []Record
	for _, n := range s.nodes {
		all = n.appendRecords(all)
	}
	return all
}

// Places returns the places of the nodes that have one, by the nodes' addresses.
func (s *Streams) Places() map[netip.Addr]Place {
	all := map[netip.Addr]Place{}
	for _, n := range s.nodes {
		n.mu.Lock()
		if n.place != nil {
			all[n.address] = *n.place
		}
		n.mu.Unlock()
	}
	return all
}
