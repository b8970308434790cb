package agent

import (
	"fmt"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cni/ovs/vif"
)

// TestValidAttachments: a GC call without a list of attachments is an error, and one with
// an empty list is not.
func TestValidAttachments(t *testing.T) {
	for _, c := range []struct {
		name, more string
		want       []vif.Attachment // nil: an error
	}{
		{"no key", ``, nil},
		{"null", `,"cni.dev/valid-attachments":null`, nil},
		{"the key of older runtimes", `,"cni.dev/attachments":[]`, nil},
		{"an empty list", `,"cni.dev/valid-attachments":[]`, []vif.Attachment{}},
		{"one", `,"cni.dev/valid-attachments":[{"containerID":"c","ifname":"eth0"}]`, []vif.Attachment{{Container: "c", IfName: "eth0"}}},
		{"no container", `,"cni.dev/valid-attachments":[{"ifname":"eth0"}]`, nil},
		{"no interface", `,"cni.dev/valid-attachments":[{"containerID":"c"}]`, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			n, err := readNetwork(fmt.Appendf(nil, `{"cniVersion":"1.1.0","name":"coe"%s}`, c.more))
			require.NoError(t, err)
			valid, err := n.valid()
			require.Equal(t, c.want, valid)
			if c.want == nil {
				var said *types.Error
				require.ErrorAs(t, err, &said)
				require.EqualValues(t, types.ErrInvalidNetworkConfig, said.Code)
			}
		})
	}
	_, err := (&network{}).valid()
	require.ErrorContains(t, err, "name")
}
