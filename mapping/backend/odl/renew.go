package odl

import (
	"context"
	"reflect"
	"slices"
	"time"

	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/codec"
	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/operational"
)

// renewWait and renewEach, for each entry, bound the wait until the controller has removed
// the operational state of deleted entries. renewPoll is the interval of the checks. Twice
// the wait is less than the deadline of a Write.
const (
	renewWait = 4 * time.Second
	renewEach = 20 * time.Millisecond
	renewPoll = 50 * time.Millisecond
)

// mustRecreate reports whether an entry is a vpn-interface that gets other vpn-instances or
// addresses, or an elan-interface that gets another elan-instance. An update changes only
// the datastore then, and not the controller's operational state, so the entry has to be
// deleted and created again (decision 25).
func mustRecreate(there, wanted codec.Entry) bool {
	switch was := there.(type) {
	case *codec.ELANInterface:
		return was.ELAN != wanted.(*codec.ELANInterface).ELAN
	case *codec.VPNInterface:
		now := wanted.(*codec.VPNInterface)
		return !reflect.DeepEqual(was.VPNs, now.VPNs) || !reflect.DeepEqual(was.Own().(*codec.VPNInterface).Adjacencies, now.Adjacencies)
	}
	return false
}

// departure is a deleted entry of an interface whose operational state may still exist.
type departure struct {
	name string
	elan string          // of an elan-interface
	vpns []codec.VPNName // of a vpn-interface
	// until is when the state is not waited for any more.
	until time.Time
}

// departureOf returns the departure of an entry; ok is false if the entry has no operational
// state to wait for.
func departureOf(e codec.Entry) (departure, bool) {
	switch e := e.(type) {
	case *codec.ELANInterface:
		return departure{name: e.Name, elan: e.ELAN}, true
	case *codec.VPNInterface:
		return departure{name: e.Name, vpns: e.VPNs}, true
	}
	return departure{}, false
}

// removeForRecreation deletes the entries that have to be created again, and waits until the
// controller has removed their operational state.
func (w *write) removeForRecreation(ctx context.Context, all []*codec.Operation, found map[string]codec.Entry) error {
	var going []*codec.Operation
	for _, o := range all {
		there := found[o.Key()]
		if there != nil && (o.There || codec.MayTake(there)) && mustRecreate(there, o.Entry) {
			going = append(going, o)
		}
	}
	err := w.each(ctx, going, func(ctx context.Context, o *codec.Operation) error {
		_, err := w.erase(ctx, o)
		return err
	})
	if err != nil {
		return err
	}
	going = slices.DeleteFunc(going, w.isRefused)
	return w.awaitGone(ctx, going, func(o *codec.Operation) codec.Entry { return found[o.Key()] })
}

// awaitGone waits until the controller has removed the operational state of deleted entries. It would confuse
// new entries of the same names with the deleted ones. After the wait the write goes on in any case.
func (w *write) awaitGone(ctx context.Context, all []*codec.Operation, was func(*codec.Operation) codec.Entry) error {
	var leaving []departure
	for _, o := range all {
		if d, ok := departureOf(was(o)); ok {
			leaving = append(leaving, d)
		}
	}
	return w.await(ctx, len(leaving), func() (left int, err error) {
		leaving, err = w.still(ctx, leaving)
		return len(leaving), err
	})
}

// withoutMembers postpones deletions of elan-instances that are not ready for it: the controller has not tagged them (see
// tagWait), or they have members in operation. The controller deletes remaining members by name, and the names may belong to
// new interfaces by then.
func (w *write) withoutMembers(ctx context.Context, all []*codec.Operation) ([]*codec.Operation, error) {
	if len(all) == 0 {
		return nil, nil
	}
	found, err := w.Look(ctx, &w.Lists[codec.ELANInstances], keysOf(all))
	if err != nil {
		return nil, err
	}
	all = w.postponeSome(all, tagWait, func(o *codec.Operation) bool { return !isTagged(found[o.Key()]) })
	members, err := operational.ELANMembers(ctx, w.Session, keysOf(all))
	return w.postponeSome(all, renewWait, func(o *codec.Operation) bool { return len(members[o.Key()]) > 0 }), err
}

// withoutFormer postpones creations of elan-instances while the operational state of former ones with their names exists.
// Netvirt gives a new elan-instance no tag if it finds such a state, and programs none of its interfaces.
func (w *write) withoutFormer(ctx context.Context, all []*codec.Operation) ([]*codec.Operation, error) {
	present, err := operational.ELANMembers(ctx, w.Session, keysOf(all))
	return w.postponeSome(all, renewWait, func(o *codec.Operation) bool {
		_, is := present[o.Key()]
		return is
	}), err
}

// await calls left, with n things at first, until it returns 0 or the wait is over.
func (w *write) await(ctx context.Context, n int, left func() (int, error)) error {
	if n == 0 {
		return nil
	}
	timeout := time.NewTimer(renewWait + time.Duration(n)*renewEach)
	defer timeout.Stop()
	poll := time.NewTicker(renewPoll)
	defer poll.Stop()
	for {
		n, err := left()
		if err != nil || n == 0 {
			return err
		}
		select {
		case <-poll.C:
		case <-timeout.C:
			w.backend.log.Warn("OpenDaylight has not processed written or deleted entries in time; the write goes on", "entries", n)
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// still returns the departures whose operational state still exists.
func (w *write) still(ctx context.Context, all []departure) (left []departure, err error) {
	var elans []string
	for _, d := range all {
		if d.elan != "" && !slices.Contains(elans, d.elan) {
			elans = append(elans, d.elan)
		}
	}
	members, err := operational.ELANMembers(ctx, w.Session, elans)
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

// inVPNs returns the vpn-interfaces that are still in operation in a vpn-instance that they
// were members of.
func (w *write) inVPNs(ctx context.Context, all []departure) (map[string]bool, error) {
	were := map[operational.Membership]bool{}
	for _, d := range all {
		for _, vpn := range d.vpns {
			were[operational.Membership{Interface: d.name, VPN: vpn.Name}] = true
		}
	}
	return operational.VPNMembers(ctx, w.Session, were)
}
