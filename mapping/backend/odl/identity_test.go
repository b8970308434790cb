package odl_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/odl"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// TestIdentity: the first write gives the controller's datastore an identity. The identity
// stays when all our entries are deleted, and a datastore that was lost gets another one.
func TestIdentity(t *testing.T) {
	inEachDialect(t, func(t *testing.T, f *fake, cfg odl.Config) {
		b := open(t, cfg)
		want := small(b, 1, 5)
		_, err := b.Read(t.Context())
		require.NoError(t, err)
		require.Empty(t, b.Identity())
		require.Empty(t, f.Keys("network-topology:network-topology"), "a Read writes no identity")

		write(t, b, want)
		first := b.Identity()
		require.NotEmpty(t, first)
		write(t, b, netvirt.Model{})
		write(t, b, small(b, 2, 5))
		require.Equal(t, first, b.Identity())
		other := open(t, cfg)
		_, err = other.Read(t.Context())
		require.NoError(t, err)
		require.Equal(t, first, other.Identity())

		f.Wipe()
		_, err = b.Read(t.Context())
		require.NoError(t, err)
		require.Empty(t, b.Identity())
		write(t, b, want)
		second := b.Identity()
		require.NotEmpty(t, second)
		require.NotEqual(t, first, second)
		write(t, other, want)
		require.Equal(t, second, other.Identity())
	})
}
