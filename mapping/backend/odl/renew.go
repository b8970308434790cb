package odl

import (
	"context"
	"reflect"
	"slices"
	"time"
)

// renewWait bounds how long the controller is given to take apart what it made of entries
// that go, renewEach longer for each of them, and renewPoll is between two looks. Twice that
// is less than a Write is given.
const (
	renewWait = 4 * time.Second
	renewEach = 20 * time.Millisecond
	renewPoll = 50 * time.Millisecond
)

// renewed tells whether an entry is a vpn-interface that gets other vpn-instances or
// addresses, or an elan-interface that gets another elan-instance. To write it over what is
// there changes what the controller has stored, and not what it has made of it: it has to
// go, and to come again (docs/decisions/0025).
func renewed(there, wanted entry) bool {
	switch was := there.(type) {
	case *elanInterface:
		return was.ELAN != wanted.(*elanInterface).ELAN
	case *vpnInterface:
		now := wanted.(*vpnInterface)
		return !reflect.DeepEqual(was.VPNs, now.VPNs) || !reflect.DeepEqual(was.own().(*vpnInterface).Adjacencies, now.Adjacencies)
	}
	return false
}

// departure is an entry of an interface that was deleted, as far as the controller has
// something in operation for it.
type departure struct {
	name string
	elan string    // of an elan-interface
	vpns []vpnName // of a vpn-interface
}

// departureOf is that of an entry; false where the controller makes nothing of it that has to
// be waited for.
func departureOf(e entry) (departure, bool) {
	switch e := e.(type) {
	case *elanInterface:
		return departure{name: e.Name, elan: e.ELAN}, true
	case *vpnInterface:
		return departure{name: e.Name, vpns: e.VPNs}, true
	}
	return departure{}, false
}

// takeApart deletes the entries that are to be written anew, and waits until the controller
// has taken apart what it made of them.
func (w *write) takeApart(ctx context.Context, all []*operation, found map[string]entry) error {
	var going []*operation
	for _, o := range all {
		there := found[o.key()]
		if there != nil && (o.there || mayTake(there)) && renewed(there, o.entry) {
			going = append(going, o)
		}
	}
	err := w.each(ctx, going, func(ctx context.Context, o *operation) error {
		_, err := w.erase(ctx, o)
		return err
	})
	if err != nil {
		return err
	}
	going = slices.DeleteFunc(going, w.isRefused)
	return w.awaitGone(ctx, going, func(o *operation) entry { return found[o.key()] })
}

// awaitGone waits until the controller has nothing in operation any more for entries that are
// deleted. It needs their interfaces for that, which go next, and would take for them what comes
// again under their names. What it does not get done with keeps nothing back.
func (w *write) awaitGone(ctx context.Context, all []*operation, was func(*operation) entry) error {
	var leaving []departure
	for _, o := range all {
		if d, ok := departureOf(was(o)); ok {
			leaving = append(leaving, d)
		}
	}
	return w.patiently(ctx, len(leaving), func() (left int, err error) {
		leaving, err = w.still(ctx, leaving)
		return len(leaving), err
	})
}

// awaitEmpty waits until no interface is in operation any more in elan-instances that are to go:
// the controller deletes those that it finds there, by their names, which may belong to others
// by then.
func (w *write) awaitEmpty(ctx context.Context, all []*operation) error {
	return w.patiently(ctx, len(all), func() (left int, err error) {
		members, err := w.membersOf(ctx, keysOf(all))
		for _, o := range all {
			if len(members[o.key()]) > 0 {
				left++
			}
		}
		return left, err
	})
}

// patiently looks how many of n things are left until none is, or it takes too long.
func (w *write) patiently(ctx context.Context, n int, left func() (int, error)) error {
	if n == 0 {
		return nil
	}
	patience := time.NewTimer(renewWait + time.Duration(n)*renewEach)
	defer patience.Stop()
	poll := time.NewTicker(renewPoll)
	defer poll.Stop()
	for {
		n, err := left()
		if err != nil || n == 0 {
			return err
		}
		select {
		case <-poll.C:
		case <-patience.C:
			w.backend.log.Warn("OpenDaylight does not take apart what it made of entries that are deleted; going on without", "entries", n)
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// still returns those for which the controller has something in operation.
func (w *write) still(ctx context.Context, all []departure) (left []departure, err error) {
	var elans []string
	for _, d := range all {
		if d.elan != "" && !slices.Contains(elans, d.elan) {
			elans = append(elans, d.elan)
		}
	}
	members, err := w.membersOf(ctx, elans)
	if err != nil {
		return nil, err
	}
	inVPNs, err := w.inVPNs(ctx, all)
	if err != nil {
		return nil, err
	}
	for _, d := range all {
		if slices.Contains(members[d.elan], d.name) || inVPNs[d.name] {
			left = append(left, d)
		}
	}
	return left, nil
}

// membersOf lists the interfaces that are in operation in elan-instances.
func (w *write) membersOf(ctx context.Context, elans []string) (map[string][]string, error) {
	members := map[string][]string{}
	add := func(e elanState) { members[e.Name] = e.Interfaces }
	if len(elans) > fewEntries {
		_, err := readState(ctx, w.session, elanStates, add)
		return members, unlessRefused(err)
	}
	for _, elan := range elans {
		if _, err := readState(ctx, w.session, elanStates, add, elan); unlessRefused(err) != nil {
			return nil, err
		}
	}
	return members, nil
}

// unlessRefused is an error but for the answer that what was asked for is not there, which
// RFC 8040 of some says in words of its own.
func unlessRefused(err error) error {
	if isRefusal(err) {
		return nil
	}
	return err
}

// inVPNs tells which of the vpn-interfaces are in operation in one that they were in.
func (w *write) inVPNs(ctx context.Context, all []departure) (map[string]bool, error) {
	in, were := map[string]bool{}, map[[2]string]bool{}
	for _, d := range all {
		for _, vpn := range d.vpns {
			were[[2]string{d.name, vpn.Name}] = true
		}
	}
	add := func(m vpnMemberState) { in[m.Name] = in[m.Name] || were[[2]string{m.Name, m.VPN}] }
	if len(were) > fewEntries {
		_, err := readState(ctx, w.session, vpnMemberStates, add)
		return in, unlessRefused(err)
	}
	for one := range were {
		if _, err := readState(ctx, w.session, vpnMemberStates, add, one[0], one[1]); unlessRefused(err) != nil {
			return nil, err
		}
	}
	return in, nil
}
