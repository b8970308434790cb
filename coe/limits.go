package coe

import "fmt"

// Limits of services. One object of a tenant can have thousands of ports, external addresses
// or endpoints, and a load balancer has their product. A service above a limit is a Problem
// and is not mapped. Other services are not affected.
//
// Kubernetes limits only the size of an object. It is tested with 250 endpoints per service.
const (
	// MaxServicePorts is the maximum number of ports of a service or an Endpoints.
	MaxServicePorts = 128
	// MaxVIPs is the maximum number of VIPs of a service: its ports times its addresses.
	MaxVIPs = 256
	// MaxBackends is the maximum number of endpoints of all VIPs of a service. An IPv6
	// endpoint counts twice.
	MaxBackends = 2500
	// MaxNamespaceBackends is the same limit for all services of a namespace.
	MaxNamespaceBackends = 100_000
)

// Excess names the limit that the service itself exceeds; empty for none.
func (s *Service) Excess() string {
	if n := len(s.Ports); n > MaxServicePorts {
		return fmt.Sprintf("it has more than %d ports; split the service", MaxServicePorts)
	}
	if n := max(len(s.Ports), 1) * (len(s.ClusterIPs) + len(s.ExternalIPs)); n > MaxVIPs {
		return fmt.Sprintf("its ports times its addresses are more than %d; split the service, or remove external addresses", MaxVIPs)
	}
	return ""
}
