package odlports

import (
	"maps"
	"slices"
	"time"
)

// keepUnused is how long the port of the node in an elan-instance stays after its last interface, if OpenDaylight programs the
// switch. The bridge keeps the elan-instance for a similar time, which the agent does not know.
const keepUnused = time.Minute

// retryAfter is the least time until a port is looked at again whose removal has failed.
const retryAfter = 2 * time.Second

// unused has the ports that are unused.
type unused struct{ waits }

// NoteUnused notes which ports are unused now: they stay for a time.
func (p *Ports) NoteUnused(ports []string) { p.unused.note(ports, time.Now()) }

// note notes which ports are unused now.
func (u unused) note(ports []string, now time.Time) {
	maps.DeleteFunc(u.waits, func(port string, _ wait) bool { return !slices.Contains(ports, port) })
	for _, port := range ports {
		if _, waits := u.waits[port]; !waits {
			u.waits[port] = wait{since: now, within: keepUnused}
		}
	}
}

// Due reports whether a port that is not wanted must be removed: if it was not noted as unused, or its time is over.
func (p *Ports) Due(port string) bool { return p.unused.due(port, time.Now()) }

func (u unused) due(port string, now time.Time) bool {
	w, waits := u.waits[port]
	return !waits || w.over(now)
}

// Remove removes a port, and forgets it if that succeeds.
func (p *Ports) Remove(port string, do func() error) error { return p.unused.remove(port, do) }

func (u unused) remove(port string, do func() error) error {
	err := do()
	if err == nil {
		delete(u.waits, port)
	}
	return err
}

// next returns the time until the first port must be removed; 0 if none waits.
func (u unused) next(now time.Time) (first time.Duration) {
	for _, w := range u.waits {
		if left := max(w.within-now.Sub(w.since), retryAfter); first == 0 || left < first {
			first = left
		}
	}
	return first
}
