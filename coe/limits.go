package coe

import "fmt"

// Limits of services. One object of a tenant can hold thousands of ports,
// external addresses or endpoints, and a load balancer has the product of them.
// A service above a limit is a Problem and not mapped; the others are.
//
// Kubernetes has no limit of its own below the size of an object. It is tested
// with 250 endpoints for each service.
const (
	// MaxServicePorts is how many ports a service, or an Endpoints, may have.
	MaxServicePorts = 128
	// MaxVIPs is how many VIPs a service may have: its ports times its addresses.
	MaxVIPs = 256
	// MaxBackends is how many endpoints all VIPs of a service may have together. An
	// IPv6 endpoint counts twice.
	MaxBackends = 2500
	// MaxNamespaceBackends is the same of all services of a namespace.
	MaxNamespaceBackends = 100_000
)

// Excess says which limit the service exceeds by itself; empty for none.
func (s *Service) Excess() string {
	if n := len(s.Ports); n > MaxServicePorts {
		return fmt.Sprintf("it has more than %d ports; split the service", MaxServicePorts)
	}
	if n := max(len(s.Ports), 1) * (len(s.ClusterIPs) + len(s.ExternalIPs)); n > MaxVIPs {
		return fmt.Sprintf("its ports times its addresses are more than %d; split the service, or remove external addresses", MaxVIPs)
	}
	return ""
}
