// Package csit runs Robot Framework suites in the manner of OpenDaylight's CSIT: suites of
// cases, resources with the keywords that they are written in, variables that say where the
// controller is, and the bodies that are sent. The controller is a whole bridge with OVN, one
// with a real OpenDaylight behind it, or that OpenDaylight itself, to see where it differs.
package csit
