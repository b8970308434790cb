//go:build race

package backendtest

// seeds is the number of random walks of each kind in Run. The race detector makes a walk several times as
// long, and finds nothing more in the next one. make test also runs the suite without it.
const seeds = 1
