//go:build race

package backendtest

// The race detector makes each step several times as long, and finds nothing more in the next one. make test also runs the suites of memory, OpenDaylight and OVN 25.03
// without it.
const (
	// seeds is the number of random walks of each kind in Run.
	seeds = 1
	// stride is the number of changes by which a prefix in Run is longer than the one before.
	stride = 10
)
