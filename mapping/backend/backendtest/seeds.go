//go:build !race

package backendtest

// seeds is the number of random walks of each kind in Run.
const seeds = 6
