// Package csit runs Robot Framework suites in the style of OpenDaylight's CSIT. The suites have
// cases, the resources have their keywords, the variables have the address of the controller, and
// bodies has the bodies of requests. The controller is a bridge with OVN, a bridge with a real
// OpenDaylight as its backend, or that OpenDaylight itself, to find the differences.
package csit
