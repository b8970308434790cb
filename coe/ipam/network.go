package ipam

import (
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/dhcppool"
)

// networks are the network-ids of the pools that may serve the elan; the first
// that has one does. The pool "default" is the last resort, for the namespace of
// that name too.
func (e *elan) networks() []string {
	names := []string{e.Name}
	if e.namespace.name != dhcppool.DefaultNetwork {
		names = append(names, e.namespace.name)
	}
	return append(names, e.node.String(), dhcppool.DefaultNetwork)
}

func quoted(names []string) string { return `"` + strings.Join(names, `", "`) + `"` }

// exhausted says that a network's pools have no address left, and what would
// serve the elan in their stead.
func (e *elan) exhausted(network string, err error) *coe.Refusal {
	message := err.Error()
	networks := e.networks()
	if before := networks[:slices.Index(networks, network)]; len(before) > 0 {
		message += ", or a dhcp_allocation_pool with network-id " + quoted(before)
	}
	return &coe.Refusal{Reason: coe.PoolExhausted, Message: message}
}
