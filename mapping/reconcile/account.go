package reconcile

import "github.com/coe-bridge/coe-bridge/mapping/netvirt"

// accepted forgets that changes that were made had been rejected.
func (l *Loop) accepted(changes []netvirt.Change) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.rejected) == 0 {
		return
	}
	for _, c := range changes {
		delete(l.rejected, c.Key())
	}
}

// wrote notes that the backend has made changes, which were not all that would make
// it agree.
func (l *Loop) wrote(epoch uint64, changes []netvirt.Change) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.epoch != epoch {
		return errChanged
	}
	made := map[netvirt.Scope][]netvirt.Change{}
	for _, c := range changes {
		made[c.Scope()] = append(made[c.Scope()], c)
		if leavesCluster(c) {
			made[netvirt.Cluster] = append(made[netvirt.Cluster], netvirt.Change{Old: c.Old})
		}
	}
	for s, changes := range made {
		l.have[s] = l.have[s].Apply(changes)
	}
	return nil
}

// agrees notes that the backend has scopes as they were wanted. The wanted model is
// kept rather than what was read: the next one shares its parts with it, which
// makes both small, and quick to compare.
func (l *Loop) agrees(epoch uint64, wanted map[netvirt.Scope]netvirt.Parts) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.epoch != epoch {
		return errChanged
	}
	for s, want := range wanted {
		l.have[s] = want
		if len(want) == 0 {
			delete(l.have, s)
		}
	}
	return nil
}

// firstTime returns the scopes that were not programmed in this epoch before, and notes
// that they are now.
func (l *Loop) firstTime(scopes []netvirt.Scope, epoch uint64) []netvirt.Scope {
	l.mu.Lock()
	defer l.mu.Unlock()
	var first []netvirt.Scope
	for _, s := range scopes {
		if one := l.scope(s); !one.once || one.epoch != epoch {
			one.once, one.epoch = true, epoch
			first = append(first, s)
		}
	}
	return first
}
