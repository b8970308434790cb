// Package odl has a real OpenDaylight for tests and the demo: a whole controller with
// Netvirt and both of its RESTCONF dialects, put together once from published parts, that
// runs in the central namespace of a lab of test/ovnhost, where it manages the hosts'
// switches.
//
// A controller is closed to the outside: its ports are open in a network namespace alone,
// which is why every one of several controllers has the same. What is installed is never
// written to; each controller has a folder of its own for what it keeps.
//
// The package needs root, and the Debian packages that Missing names. It knows nothing of
// the bridge, nor of what is written to a controller.
package odl

import "fmt"

// Release is a release of OpenDaylight.
type Release string

const (
	// Oxygen is of March 2018, and what the specification targets: it has the COE
	// northbound and Netvirt's renderer of it.
	Oxygen Release = "oxygen"
	// Neon is of March 2019. It has no COE, and another RFC 8040.
	Neon Release = "neon"
)

// Releases are those that can be had. Later ones were not published whole.
func Releases() []Release { return []Release{Oxygen, Neon} }

// versions are those of a release's projects, and of what is there once it has started.
type versions struct {
	Netvirt, Netconf, ODLParent string
	probe                       string // a module and its revision, which is loaded late
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
