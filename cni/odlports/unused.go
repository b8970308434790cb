package odlports

import (
	"maps"
	"slices"
	"time"
)

// keepUnused is how long the port of the node in an elan-instance stays after its last interface, if OpenDaylight programs the
// switch. The bridge keeps the elan-instance for a similar time, which the agent does not know.
const keepUnused = time.Minute

// retryAfter is the time until a port is looked at again that could not be removed, or that another one kept from being replaced.
const retryAfter = 2 * time.Second

// unused has since when ports are unused.
type unused map[string]time.Time

// NoteUnused notes which ports are unused now: they stay for a time.
func (p *Ports) NoteUnused(ports []string) { p.unused.note(ports, time.Now()) }

// note notes which ports are unused now.
func (u unused) note(ports []string, now time.Time) {
	maps.DeleteFunc(u, func(port string, _ time.Time) bool { return !slices.Contains(ports, port) })
	for _, port := range ports {
		if _, waits := u[port]; !waits {
			u[port] = now
		}
	}
}

// Due reports whether a port that is not wanted must be removed: if it was not noted as unused, or its time is over.
func (p *Ports) Due(port string) bool { return p.unused.due(port, time.Now()) }

func (u unused) due(port string, now time.Time) bool {
	since, waits := u[port]
	return !waits || now.Sub(since) >= keepUnused
}

// Remove removes a port, and forgets it if that succeeds.
func (p *Ports) Remove(port string, do func() error) error { return p.unused.remove(port, do) }

func (u unused) remove(port string, do func() error) error {
	err := do()
	if err == nil {
		delete(u, port)
	}
	return err
}

// next returns the time until the first port must be removed; 0 if none waits.
func (u unused) next(now time.Time) (first time.Duration) {
	for _, since := range u {
		if left := max(keepUnused-now.Sub(since), retryAfter); first == 0 || left < first {
			first = left
		}
	}
	return first
}
