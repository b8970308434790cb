package flags

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
)

func TestLayout(t *testing.T) {
	for name, c := range map[string]struct {
		text     string
		isolated bool
		want     ovn.Layout
		err      string
	}{
		"elan":           {"elan", false, ovn.LayoutELAN, ""},
		"elan, isolated": {"elan", true, ovn.LayoutELAN, ""},
		"node":           {"node", false, ovn.LayoutNode, ""},
		"node, isolated": {"node", true, "", "does not isolate namespaces: use --isolation none"},
		"another":        {"vpn", false, "", `--ovn-layout: layout "vpn": want elan or node`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Layout(c.text, c.isolated)
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
}
