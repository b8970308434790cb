// Package csit runs Robot Framework suites against a whole bridge with OVN, in the
// manner of OpenDaylight's CSIT: suites of cases, resources with the keywords that they
// are written in, variables that say where the controller is, and the bodies that are
// sent.
package csit
