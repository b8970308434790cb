package bridge

import (
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// lostEvery is the shortest interval between two log lines of lost histories.
const lostEvery = time.Minute

// lostHistories counts followers whose event ID is from before a restore of the datastore.
// They get all events again.
type lostHistories struct {
	log   *slog.Logger
	count prometheus.Counter

	mu     sync.Mutex
	logged time.Time
}

func newLostHistories(registry prometheus.Registerer, log *slog.Logger) *lostHistories {
	l := &lostHistories{log: log, count: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "coe_bridge_lost_event_ids_total",
		Help: "Followers of streams whose event ID is from before a restore of the datastore.",
	})}
	registry.MustRegister(l.count)
	return l
}

// note counts a follower of a stream.
func (l *lostHistories) note(stream string, revision int64) {
	l.count.Inc()
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.logged) < lostEvery {
		return
	}
	l.logged = time.Now()
	l.log.Error("a follower's event ID is from before a restore of the datastore; the follower gets all events again",
		"stream", stream, "revision", revision)
}
