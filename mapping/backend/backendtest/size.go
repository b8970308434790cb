//go:build !race

package backendtest

const (
	// seeds is the number of random walks of each kind in Run.
	seeds = 3
	// stride is the number of changes by which a prefix in Run is longer than the one before.
	stride = 1
)
