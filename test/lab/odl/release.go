// Package odl runs a real OpenDaylight for tests and the demo: a complete controller with Netvirt and
// both RESTCONF dialects, built once from published artifacts. It runs in the central namespace of
// a lab of test/lab/ovnhost, and manages the switches of the hosts.
//
// A controller is not reachable from outside: its ports are in a network namespace only, so several
// controllers use the same ports. The installation is read-only; each controller has its own
// directory for its data.
//
// The package needs root, and the Debian packages that Missing returns. It knows neither the bridge
// nor what is written to a controller.
package odl

import "fmt"

// Release is a release of OpenDaylight.
type Release string

const (
	// Oxygen is the release of March 2018, which the specification targets. It has the COE northbound
	// and Netvirt's renderer for it.
	Oxygen Release = "oxygen"
	// Neon is of March 2019. It has no COE, and another RFC 8040.
	Neon Release = "neon"
)

// Releases returns the available releases. Later ones were not published completely.
func Releases() []Release { return []Release{Oxygen, Neon} }

// versions are the versions of a release's projects, and what exists after its start.
type versions struct {
	Netvirt, Netconf, ODLParent string
	probe                       string // a module with its revision that is loaded late
}

func (r Release) versions() (versions, error) {
	switch r {
	case Oxygen:
		return versions{Netvirt: "0.6.0", Netconf: "1.7.0", ODLParent: "3.0.2", probe: "pod/2017-06-11"}, nil
	case Neon:
		return versions{Netvirt: "0.8.0", Netconf: "1.9.0", ODLParent: "4.0.9", probe: "elan/2015-06-02"}, nil
	default:
		return versions{}, fmt.Errorf("release %q of OpenDaylight: have %v", r, Releases())
	}
}
