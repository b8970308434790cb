package reconcile

import (
	"errors"
	"fmt"
	"time"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// rejection is a change that the backend has rejected. The cause may disappear, so the change is
// tried again with increasing delays.
type rejection struct {
	change netvirt.Change
	err    error
	wait   time.Duration
	again  time.Time
}

// firstRetry is how long a change waits after its first rejection.
const firstRetry = time.Second

// setAside removes rejected objects, and objects that need them, from a wanted model. For
// objects that the backend has, it keeps the backend's version.
func (l *Loop) setAside(s netvirt.Scope, want netvirt.Model, refused map[netvirt.Key]error) []coe.Problem {
	var problems []coe.Problem
	have := l.have[s]
	aside := func(k netvirt.Key, err error) {
		problems = append(problems, rejectedProblem(k, s, err))
		if have.Get(k) != nil {
			keep(want, have, k)
			delete(refused, k)
			return
		}
		refused[k] = err
		delete(want, k)
	}
	for k, err := range refused {
		aside(k, err)
	}
	for _, k := range want.Keys() {
		for _, other := range prerequisites(want[k], want, have) {
			if refused[other] != nil {
				aside(k, fmt.Errorf("it needs %s, which was rejected", other))
				break
			}
		}
	}
	return problems
}

// prerequisites returns the keys of the objects without which the backend must not get an object:
// those that it refers to. An interface of a pod that the backend does not have also needs its
// InterfaceACL and its ACLs: without them it would have all traffic.
func prerequisites(o netvirt.Object, want netvirt.Model, have netvirt.Parts) []netvirt.Key {
	i, is := o.(netvirt.Interface)
	if before, found := have.Get(o.Key()).(netvirt.Interface); !is || found && before.PodUID == i.PodUID {
		return o.Refs()
	}
	joins := netvirt.InterfaceACL{Interface: i.Name}.Key()
	all := append(o.Refs(), joins)
	if acl := want[joins]; acl != nil {
		all = append(all, acl.Refs()...)
	}
	return all
}

// refused returns the objects of a wanted model that were rejected and must not be tried now,
// with the reason. It marks the scope for the time when the first may be tried again. It
// forgets rejections of objects that have changed, or that an external writer has written.
func (l *Loop) refused(s netvirt.Scope, want netvirt.Parts) map[netvirt.Key]error {
	refused := map[netvirt.Key]error{}
	now, first := time.Now(), l.cfg.Resync
	for k, r := range l.rejected {
		switch {
		case r.change.Scope() != s:
		case want.Get(k) != r.change.New, want.Get(k) == l.have[s].Get(k):
			delete(l.rejected, k)
		case now.Before(r.again):
			refused[k] = r.err
			first = min(first, r.again.Sub(now))
		}
	}
	if len(refused) > 0 {
		l.worker.markAfter(first, s)
	}
	return refused
}

// keep puts the backend's object of a key into a wanted model, and the objects that it refers
// to.
func keep(want netvirt.Model, have netvirt.Parts, k netvirt.Key) {
	want[k] = have.Get(k)
	for _, ref := range want[k].Refs() {
		if want[ref] == nil && have.Get(ref) != nil {
			keep(want, have, ref)
		}
	}
}

func rejectedProblem(k netvirt.Key, s netvirt.Scope, err error) coe.Problem {
	return coe.Problem{
		Namespace: string(s), Kind: k.Kind.String(), UID: k.Name, Name: k.Name,
		Reason: coe.BackendRejected, Message: err.Error(),
	}
}

// reject notes the changes that a failed write names as rejected.
func (l *Loop) reject(changes []netvirt.Change, err error) {
	var rejected *netvirt.RejectedError
	if !errors.As(err, &rejected) {
		return
	}
	named := map[netvirt.Key]bool{}
	for _, k := range rejected.Keys {
		named[k] = true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range changes {
		if named[c.Key()] {
			l.rejectOne(c, rejected.Err)
		}
	}
}

func (l *Loop) rejectOne(c netvirt.Change, why error) {
	k, wait := c.Key(), firstRetry
	if before, found := l.rejected[k]; found && before.change.New == c.New {
		wait = min(2*before.wait, l.cfg.Resync)
	} else {
		l.log.Error("backend rejects object", "scope", c.Scope(), "kind", k.Kind, "name", k.Name, "err", why)
	}
	l.rejected[k] = rejection{c, why, wait, time.Now().Add(wait)}
}
