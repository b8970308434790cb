package nodeports

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe/nodenet"
)

// The bridge and the agent agree on the addresses of gateways.
func TestRangesOfGateways(t *testing.T) {
	require.Equal(t, nodenet.GatewayLinks, ipv4.gateways)
	require.Equal(t, nodenet.GatewayLinksIPv6, ipv6.gateways)
}
