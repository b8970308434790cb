package bridge

import (
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// lostEvery is how often lost histories are logged at most.
const lostEvery = time.Minute

// lostHistories counts the followers whose event ID is of a history of the datastore that
// a restore from a backup has ended. They are told everything again.
type lostHistories struct {
	log   *slog.Logger
	count prometheus.Counter

	mu     sync.Mutex
	logged time.Time
}

func newLostHistories(registry prometheus.Registerer, log *slog.Logger) *lostHistories {
	l := &lostHistories{log: log, count: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "coe_bridge_lost_event_ids_total",
		Help: "Followers of streams whose event ID is of a history of the datastore that a restore has ended.",
	})}
	registry.MustRegister(l.count)
	return l
}

// told takes note of a follower of a stream.
func (l *lostHistories) told(stream string, revision int64) {
	l.count.Inc()
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.logged) < lostEvery {
		return
	}
	l.logged = time.Now()
	l.log.Error("a follower's event ID is of another history: the datastore was restored from a backup; the follower is told everything",
		"stream", stream, "revision", revision)
}
