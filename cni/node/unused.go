package node

import (
	"slices"
	"strings"
	"time"
)

// keepUnused is how long the port of the node in an elan-instance stays after its last interface, if OpenDaylight programs the
// switch. OpenDaylight can lose flows of a port that returns while it removes it. The bridge keeps the elan-instance for a
// similar time, which the agent does not know.
const keepUnused = time.Minute

// unused has the ports in elan-instances without interfaces, with the time since when. After a start it begins again.
type unused map[string]time.Time

// note notes which ports are unused now.
func (u unused) note(ports []string, now time.Time) {
	for port := range u {
		if !slices.Contains(ports, port) {
			delete(u, port)
		}
	}
	for _, port := range ports {
		if u[port].IsZero() {
			u[port] = now
		}
	}
}

// due reports whether a port must be removed: if it was not noted, or its time is over.
func (u unused) due(port string, now time.Time) bool {
	since, found := u[port]
	return !found || now.Sub(since) >= keepUnused
}

// remove removes a port, and forgets it if that succeeds.
func (u unused) remove(port string, do func() error) error {
	err := do()
	if err == nil {
		delete(u, port)
	}
	return err
}

// next returns the time until the first port must be removed, or until its removal, which has failed, is tried again; 0 if
// there is none.
func (u unused) next(now time.Time) time.Duration {
	var first time.Duration
	for _, since := range u {
		if left := max(keepUnused-now.Sub(since), retryAfter); first == 0 || left < first {
			first = left
		}
	}
	return first
}

// unusedPorts returns the ports with names for OpenDaylight whose own end is the link of a namespace, if no wanted pair has one
// of both. links has the own ends of ports.
func unusedPorts(links map[string]string, pairs []pair) (all []string) {
	for port, link := range links {
		kept := strings.HasPrefix(port, tapPrefix) && strings.HasPrefix(link, linkPrefix)
		if kept && !slices.ContainsFunc(pairs, func(p pair) bool { return p.link == link || p.port == port }) {
			all = append(all, port)
		}
	}
	return all
}
