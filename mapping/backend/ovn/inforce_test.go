package ovn_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
	"github.com/coe-bridge/coe-bridge/test/lab/ovsdb"
)

// A request is in force once the hosts have confirmed its number.
func TestInForce(t *testing.T) {
	server := ovsdb.Start(t)
	b := open(t, server, func(c *ovn.Config) { c.Epoch = "1" })
	first, err := b.RequestInForce(t.Context())
	require.NoError(t, err)
	second, err := b.RequestInForce(t.Context())
	require.NoError(t, err)
	require.Equal(t, first+1, second)
	northd, hosts, err := b.InForce(t.Context(), first)
	require.NoError(t, err)
	require.False(t, northd || hosts)
}
