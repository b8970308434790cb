package ipam

import (
	"github.com/coe-bridge/coe-bridge/coe/journal"
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

// rests has the rests of released records.
type rests struct {
	cfg      *Config
	byRecord map[string]rest
}

// note starts the rest of a released record. released is the time in the record; 0 means that the
// record is in use or deleted, and ends its rest.
func (r *rests) note(record string, released int64) {
	if released == 0 {
		delete(r.byRecord, record)
	} else if r.byRecord[record].released != released {
		r.byRecord[record] = rest{released, r.cfg.Elapsed() + r.cfg.ReuseDelay, r.cfg.Now().Add(r.cfg.ReuseDelay)}
	}
}

// over reports whether the rest of a record is over at a time of Config.Elapsed.
func (r *rests) over(record string, elapsed time.Duration) bool {
	return elapsed >= r.byRecord[record].end
}

// until returns the end of a record's rest, for people.
func (r *rests) until(record string) string {
	return r.byRecord[record].until.UTC().Format("15:04:05 UTC")
}

// loadRests starts the rests of released records. Rests that this leader has started itself
// continue.
func (a *Assigner) loadRests() {
	before := a.rests.byRecord
	a.rests.byRecord = map[string]rest{}
	for key, l := range a.leases {
		a.rests.note(journal.LeaseRecord(key), l.Released)
	}
	for _, ns := range a.namespaces {
		for _, formers := range ns.formers {
			for _, f := range formers {
				a.rests.note(journal.FormerRecord(f), f.Released)
			}
		}
	}
	for uid, s := range a.services {
		a.rests.note(journal.ServiceRecord(uid), s.Released)
	}
	maps.DeleteFunc(before, func(record string, r rest) bool { return a.rests.byRecord[record].released != r.released })
	maps.Copy(a.rests.byRecord, before)
}

// stamp returns the time of a release for its record, rounded up to the next second. The time is
// for people, and identifies the release.
func (r *round) stamp() int64 { return r.now.Add(time.Second - 1).Unix() }
