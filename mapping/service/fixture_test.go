package service_test

import (
	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping"
	"github.com/coe-bridge/coe-bridge/mapping/service"
)

const (
	uid1 = "8f2a6d5e-0000-4000-8000-000000000001"
	uid2 = "8f2a6d5e-0000-4000-8000-000000000002"
	svc1 = "8f2a6d5e-0000-4000-8000-0000000000a1"
	svc2 = "8f2a6d5e-0000-4000-8000-0000000000a2"
)

var settings = mapping.Settings{Isolation: mapping.IsolationNone, DHCPLeaseTime: 3600, ManagementPorts: true}

// exposedPorts returns the ports on which nodes answer, given the settings for the whole mapping.
func exposedPorts(v coe.View, s mapping.Settings) []coe.ExposedPort {
	return service.ExposedPorts(v, s.ServiceSettings())
}
