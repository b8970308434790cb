package flags

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
)

func TestLayout(t *testing.T) {
	for _, layout := range []ovn.Layout{ovn.LayoutELAN, ovn.LayoutNode} {
		got, err := Layout(string(layout))
		require.NoError(t, err)
		require.Equal(t, layout, got)
	}
	_, err := Layout("vpn")
	require.ErrorContains(t, err, `--ovn-layout: layout "vpn": want elan or node`)
}

// TestIsolation: with a switch for each node, ACLs keep namespaces apart. Other backends cannot.
func TestIsolation(t *testing.T) {
	for _, c := range []struct {
		layout   string
		backends []string
		want     mapping.Isolation
	}{
		{"elan", []string{"ovn", "odl"}, mapping.IsolationNamespace},
		{"node", []string{"ovn"}, mapping.IsolationACLs},
		{"node", []string{"ovn", "odl"}, ""},
		{"node", []string{"odl"}, ""},
	} {
		f := Backends{ovnLayout: c.layout}
		got, err := f.Isolation(c.backends, mapping.IsolationNamespace)
		if c.want == "" {
			require.ErrorContains(t, err, "use --backend ovn alone")
		} else {
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		}
		got, err = f.Isolation(c.backends, mapping.IsolationNone)
		require.NoError(t, err)
		require.Equal(t, mapping.IsolationNone, got)
	}
}
