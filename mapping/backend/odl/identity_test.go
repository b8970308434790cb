package odl_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/odl"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// TestIdentity: a controller's datastore is given a name by the first write, keeps it through
// whatever becomes of what is ours, and has another when it was lost.
func TestIdentity(t *testing.T) {
	inEachDialect(t, func(t *testing.T, f *fake, cfg odl.Config) {
		b := open(t, cfg)
		want := small(b, 1, 5)
		_, err := b.Read(t.Context())
		require.NoError(t, err)
		require.Empty(t, b.Identity())
		require.Empty(t, f.Keys("network-topology:network-topology"), "who reads gives no name")

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
