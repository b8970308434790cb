package flags

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
)

// TestLayout: without the flag the layout follows from the isolation. A backend has none then, because the bridge asks its datastore.
func TestLayout(t *testing.T) {
	for _, c := range []struct {
		text      string
		isolation mapping.Isolation
		want      ovn.Layout
	}{
		{"", mapping.IsolationNone, ovn.LayoutNode},
		{"", mapping.IsolationNamespace, ovn.LayoutELAN},
		{"elan", mapping.IsolationNone, ovn.LayoutELAN},
		{"node", mapping.IsolationNamespace, ovn.LayoutNode},
	} {
		layout, err := Layout(c.text, c.isolation)
		require.NoError(t, err)
		require.Equal(t, c.want, layout)
		f := Backends{ovnLayout: c.text, ODLURL: "http://127.0.0.1:8181"}
		all, err := f.All([]string{"odl", "ovn"}, ReadOnce())
		require.NoError(t, err)
		require.Equal(t, ovn.Layout(c.text), all[1].OVN.Layout)
	}
	_, err := Layout("vpn", mapping.IsolationNone)
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
		{"", []string{"ovn", "odl"}, mapping.IsolationNamespace},
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
