// Package conntrack deletes connections that the kernel tracks in a network namespace. The next packet of a deleted connection begins it again,
// by the present rules of nftables. Connections in a zone belong to the switch: the package never sees them. It knows neither services nor
// pods: its callers say which connections no longer lead where they should.
package conntrack

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/coe-bridge/coe-bridge/cni/links"
)

// Connection is an entry of the kernel.
type Connection struct {
	Protocol uint8
	// Sent are the ends of what the client sends, before translation. Answers are the ends of what comes back, before it is translated back.
	Sent, Answers Ends

	zone uint16
	raw  []byte // its attributes
}

// Ends are the addresses and ports of packets. The ports are 0 if the protocol has none.
type Ends struct{ From, To netip.AddrPort }

func (e Ends) valid() bool { return e.From.Addr().IsValid() && e.To.Addr().IsValid() }

// Led reports whether the destination of the connection is translated.
func (c Connection) Led() bool { return c.Sent.To != c.Answers.From }

// Delete deletes the stale connections of a family, such as unix.AF_INET. The tuples only narrow the search: stale also gets connections that
// none of them names, and must check everything.
func Delete(ns netns.NsHandle, family int, tuples []Tuple, stale func(Connection) bool) error {
	k, err := open(ns, family)
	if err != nil {
		return err
	}
	defer k.close()
	all, err := k.list(tuples)
	for i := range all {
		if stale(all[i]) {
			err = errors.Join(err, k.remove(&all[i]))
		}
	}
	return err
}

// sweptAtOnce is how many connections Sweep keeps in memory.
const sweptAtOnce = 1000

// Sweep is Delete for the network namespace of a pod, which can have very many connections: it keeps few of them in memory. A list that the
// kernel interrupts is not repeated.
func Sweep(ns netns.NsHandle, family int, tuples []Tuple, stale func(Connection) bool) error {
	for _, t := range few(tuples) {
		if err := sweep(ns, family, t, stale); err != nil {
			return err
		}
	}
	return nil
}

func sweep(ns netns.NsHandle, family int, t Tuple, stale func(Connection) bool) error {
	reads, err := open(ns, family)
	if err != nil {
		return err
	}
	defer reads.close()
	removes, err := open(ns, family)
	if err != nil {
		return err
	}
	defer removes.close()
	var (
		found  []Connection
		failed error
	)
	remove := func() {
		for i := range found {
			failed = errors.Join(failed, removes.remove(&found[i]))
		}
		found = found[:0]
	}
	err = reads.each(t, func(c Connection) bool {
		if stale(c) {
			c.raw = slices.Clone(c.raw)
			found = append(found, c)
		}
		if len(found) == sweptAtOnce {
			remove()
		}
		return failed == nil
	})
	remove()
	return errors.Join(err, failed)
}

// DeleteOfOthers deletes the IPv4 connections of others than the node's programs whose source was translated to an address.
func DeleteOfOthers(node netns.NsHandle, source netip.Addr) error {
	own, err := links.Addresses(node)
	if err == nil {
		err = Delete(node, unix.AF_INET, []Tuple{{Answers: true, To: source}}, func(c Connection) bool {
			return c.Answers.To.Addr() == source && !slices.Contains(own, c.Sent.From.Addr())
		})
	}
	if err != nil {
		return fmt.Errorf("forget the connections of others with source %s: %w", source, err)
	}
	return nil
}

// DeleteTo deletes the IPv4 connections to an address, except those that are led elsewhere.
func DeleteTo(ns netns.NsHandle, to netip.Addr) error {
	err := Delete(ns, unix.AF_INET, []Tuple{{To: to}}, func(c Connection) bool {
		return c.Sent.To.Addr() == to && c.Answers.From.Addr() == to
	})
	if err != nil {
		return fmt.Errorf("forget the connections to %s: %w", to, err)
	}
	return nil
}

// Leaving is a connection as its packets leave the node, after translation.
type Leaving struct {
	Protocol uint8
	Ends
}

// DeleteLeaving deletes IPv4 connections.
func DeleteLeaving(ns netns.NsHandle, all map[Leaving]bool) error {
	var tuples []Tuple
	for c := range all {
		tuples = append(tuples, Tuple{
			Answers: true, Protocol: c.Protocol, From: c.To.Addr(), FromPort: c.To.Port(), To: c.From.Addr(), ToPort: c.From.Port(),
		})
	}
	err := Delete(ns, unix.AF_INET, tuples, func(c Connection) bool {
		return all[Leaving{c.Protocol, Ends{From: c.Answers.To, To: c.Answers.From}}]
	})
	if err != nil {
		return fmt.Errorf("forget %d connections: %w", len(all), err)
	}
	return nil
}
