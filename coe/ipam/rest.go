package ipam

import (
	"maps"
	"time"
)

// rest is how long what was released rests. The journal has the wall-clock time of
// the release, and clocks of leaders differ or are set. So only the leader's own
// monotonic clock counts (Config.Elapsed): from the release, or for a release before
// this leader loaded the journal, from then. No clock ends a rest early, or makes
// it last longer than one full rest after a leader has begun.
type rest struct {
	released int64         // as the record says, to recognise it when it is loaded again
	end      time.Duration // by Config.Elapsed
	until    time.Time     // the same for people
}

// newRest is a full rest from now on.
func (a *Assigner) newRest(released int64) rest {
	return rest{released, a.cfg.Elapsed() + a.cfg.ReuseDelay, a.cfg.Now().Add(a.cfg.ReuseDelay)}
}

// note follows what a record says now: released is 0 for one that is in use, or gone.
func (a *Assigner) note(record string, released int64) {
	if released == 0 {
		delete(a.rests, record)
	} else if a.rests[record].released != released {
		a.rests[record] = a.newRest(released)
	}
}

// loadRests has what is released in the memory rest. What this leader saw released
// itself goes on resting.
func (a *Assigner) loadRests() {
	before := a.rests
	a.rests = map[string]rest{}
	for key, l := range a.leases {
		a.note(leaseRecord(key), l.Released)
	}
	for _, ns := range a.namespaces {
		for _, formers := range ns.formers {
			for _, f := range formers {
				a.note(formerRecord(f), f.Released)
			}
		}
	}
	for uid, s := range a.services {
		a.note(serviceRecord(uid), s.Released)
	}
	maps.DeleteFunc(before, func(record string, r rest) bool { return a.rests[record].released != r.released })
	maps.Copy(a.rests, before)
}

// stamp is what a record says of a release now. It is for people and for releases
// before this one, which count from the next full second.
func (r *round) stamp() int64 { return r.now.Add(time.Second - 1).Unix() }

// over reports whether what a record released has rested long enough.
func (r *round) over(record string) bool { return r.elapsed >= r.rests[record].end }

func (r *round) restsUntil(record string) string {
	return r.rests[record].until.UTC().Format("15:04:05 UTC")
}
