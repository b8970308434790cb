package ipam

import (
	"maps"
	"time"
)

// rest is the time for which a released address stays reserved. The journal has the wall-clock
// time of the release, but clocks of leaders differ or are set. So only the leader's monotonic
// clock counts (Config.Elapsed): from the release, or, for a release by another leader, from
// loading the journal. No clock ends a rest early, or makes it last longer than one full rest
// after a leader has started.
type rest struct {
	released int64         // from the record, to recognise it when it is loaded again
	end      time.Duration // by Config.Elapsed
	until    time.Time     // the same moment as wall-clock time, for people
}

// newRest returns a full rest that begins now.
func (a *Assigner) newRest(released int64) rest {
	return rest{released, a.cfg.Elapsed() + a.cfg.ReuseDelay, a.cfg.Now().Add(a.cfg.ReuseDelay)}
}

// note starts the rest of a released record. released is the time in the record; 0 means that the
// record is in use or deleted, and ends its rest.
func (a *Assigner) note(record string, released int64) {
	if released == 0 {
		delete(a.rests, record)
	} else if a.rests[record].released != released {
		a.rests[record] = a.newRest(released)
	}
}

// loadRests starts the rests of released records. Rests that this leader has started itself
// continue.
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

// stamp returns the time of a release for its record, rounded up to the next second. The time is
// for people, and identifies the release.
func (r *round) stamp() int64 { return r.now.Add(time.Second - 1).Unix() }

// over reports whether the rest of a record is over.
func (r *round) over(record string) bool { return r.elapsed >= r.rests[record].end }

func (r *round) restsUntil(record string) string {
	return r.rests[record].until.UTC().Format("15:04:05 UTC")
}
