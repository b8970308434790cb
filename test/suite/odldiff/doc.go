// Package odldiff runs the same random stories of pods, nodes and services on a bridge and on a
// real OpenDaylight Oxygen, which has its own COE northbound and renderer. Both must give the same
// answers and have the same Netvirt trees, leaf by leaf. The intended differences are in a table with
// their reasons (decision 7).
//
// A story that fails is shown with its number, and with all its steps. To run it again with only
// the first story: go test -run TestStoriesOnRealOpenDaylight ./test/suite/odldiff -seed SEED -only NUMBER.
package odldiff
