package odl

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"time"
)

// renewWait bounds how long the controller is given to take apart what it made of entries
// that go, renewEach longer for each of them, and renewPoll is between two looks at one.
const (
	renewWait = 10 * time.Second
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
	at   time.Time
}

// departureOf is that of an entry; false where the controller makes nothing of it that has to
// be waited for.
func departureOf(e entry) (departure, bool) {
	switch e := e.(type) {
	case *elanInterface:
		return departure{name: e.Name, elan: e.ELAN, at: time.Now()}, true
	case *vpnInterface:
		return departure{name: e.Name, vpns: e.VPNs, at: time.Now()}, true
	}
	return departure{}, false
}

// departures are the entries that were deleted a short time ago: one of the same name that
// comes has to wait, too, until the controller has taken apart what it made of the one before.
type departures map[place]departure

// farewell is how long an entry that was deleted is remembered.
const farewell = time.Minute

// forgetOld forgets those that were deleted long ago.
func (d departures) forgetOld(now time.Time) {
	maps.DeleteFunc(d, func(_ place, one departure) bool { return now.Sub(one.at) > farewell })
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
	if err := w.each(ctx, going, w.detach); err != nil {
		return err
	}
	leaving := make([]departure, 0, len(going))
	for _, o := range going {
		if d, ok := departureOf(found[o.key()]); ok {
			leaving = append(leaving, d)
		}
	}
	return w.awaitGone(ctx, leaving)
}

// detach deletes an entry that comes again.
func (w *write) detach(ctx context.Context, o *operation) error {
	err := w.send(ctx, w.request(http.MethodDelete, w.dialect.entry(&w.lists[o.list], o.key()), nil), nil)
	if isRefusal(err) || isAbsent(err) { // what can't go shows when it is written
		return nil
	}
	return err
}

// isAbsent tells whether an error is the answer that something is not there.
func isAbsent(err error) bool {
	var answer *answerError
	return errors.As(err, &answer) && isNotFound(answer)
}

// awaitDeparted waits until those before of the same names are gone.
func (w *write) awaitDeparted(ctx context.Context, all []*operation) error {
	before := w.backend.departures
	var leaving []departure
	for _, o := range all {
		w.mu.Lock()
		d, found := before[o.at()]
		delete(before, o.at())
		w.mu.Unlock()
		if found {
			leaving = append(leaving, d)
		}
	}
	return w.awaitGone(ctx, leaving)
}

// awaitGone waits until the controller has nothing in operation any more for entries that are
// deleted. What it does not get done with keeps nothing back.
func (w *write) awaitGone(ctx context.Context, all []departure) error {
	return w.patiently(ctx, len(all), func(ctx context.Context, i int) (bool, error) { return w.isGone(ctx, all[i]) })
}

// patiently looks at each of n things until it is done, or it takes too long.
func (w *write) patiently(ctx context.Context, n int, done func(ctx context.Context, i int) (bool, error)) error {
	if n == 0 {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, renewWait+time.Duration(n)*renewEach)
	defer cancel()
	err := together(limited, w.share, n, func(ctx context.Context, i int) error {
		return poll(ctx, func() (bool, error) { return done(ctx, i) })
	})
	if limited.Err() != nil && ctx.Err() == nil {
		w.backend.log.Warn("OpenDaylight does not take apart what it made of entries that are deleted; going on without", "entries", n)
		return nil
	}
	return err
}

// poll waits until something is done.
func poll(ctx context.Context, done func() (bool, error)) error {
	tick := time.NewTicker(renewPoll)
	defer tick.Stop()
	for {
		if done, err := done(); done || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (w *write) isGone(ctx context.Context, d departure) (bool, error) {
	here := false
	if d.elan != "" {
		members, err := w.membersOf(ctx, d.elan)
		if err != nil {
			return false, err
		}
		here = slices.Contains(members, d.name)
	}
	for _, vpn := range d.vpns {
		there, err := readState(ctx, w.session, vpnMemberStates, func(vpnMemberState) {}, d.name, vpn.Name)
		if err != nil && !isRefusal(err) {
			return false, fmt.Errorf("look whether vpn-interface %s is gone: %w", d.name, err)
		}
		here = here || there
	}
	return !here, nil
}

// membersOf lists the interfaces that are in operation in an elan-instance.
func (w *write) membersOf(ctx context.Context, elan string) (members []string, err error) {
	_, err = readState(ctx, w.session, elanStates, func(e elanState) { members = e.Interfaces }, elan)
	if err != nil && !isRefusal(err) {
		return nil, fmt.Errorf("look who is left in elan-instance %s: %w", elan, err)
	}
	return members, nil
}

// awaitEmpty waits until no interface is in operation any more in elan-instances that are to go:
// the controller deletes those that it finds there, by their names, which may belong to others
// by then.
func (w *write) awaitEmpty(ctx context.Context, all []*operation) error {
	return w.patiently(ctx, len(all), func(ctx context.Context, i int) (bool, error) {
		members, err := w.membersOf(ctx, all[i].key())
		return len(members) == 0, err
	})
}
