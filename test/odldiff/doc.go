// Package odldiff tells the same stories of pods, nodes and services, made up at random, to a
// real OpenDaylight Oxygen with its own COE northbound and renderer, and to a bridge. What both
// answer, and what both make of them in Netvirt's trees, is the same, leaf by leaf, but for the
// differences that are in a table with their reasons (docs/decisions/0007).
//
// A story that fails is shown with its number, and all that was told. It is told again, with
// the first and no other, by go test -run TestStoriesOnRealOpenDaylight ./test/odldiff -seed SEED -only NUMBER.
package odldiff
