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
	until    time.Time     // the same for people
}

// newRest is a full rest from now on.
func (a *Assigner) newRest(released int64) rest {
	return rest{released, a.cfg.Elapsed() + a.cfg.ReuseDelay, a.cfg.Now().Add(a.cfg.ReuseDelay)}
}

// note notes the release of a record; 0 for a record in use, or deleted.
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

// stamp is the time of a release in its record, rounded up to the next second. It is for people,
// and to recognise the release.
func (r *round) stamp() int64 { return r.now.Add(time.Second - 1).Unix() }

// over reports whether what a record released has rested long enough.
func (r *round) over(record string) bool { return r.elapsed >= r.rests[record].end }

func (r *round) restsUntil(record string) string {
	return r.rests[record].until.UTC().Format("15:04:05 UTC")
}
