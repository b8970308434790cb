package plan

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe/kube/manifest"
	"github.com/coe-bridge/coe-bridge/dhcppool"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/codec"
)

// A plan binds the gateways of the nodes whose chassis the documents have. Without any, it binds all gateways.
func TestReportedChassis(t *testing.T) {
	var nodes, pods string
	for n := range 2 {
		nodes += fmt.Sprintf("---\napiVersion: v1\nkind: Node\nmetadata: {name: n%d}\nstatus: {addresses: [{type: InternalIP, address: 192.0.2.%d}]}\n", n, n)
		pods += fmt.Sprintf("---\napiVersion: v1\nkind: Pod\nmetadata: {name: p%d, namespace: shop}\nspec: {nodeName: n%d}\n", n, n)
	}
	pool := dhcppool.Pool{Network: "default", Subnet: netip.MustParsePrefix("10.11.0.0/24")}
	for name, c := range map[string]struct {
		chassis string
		bound   int
	}{
		"none known": {"", 2},
		"one known":  {`{"coe-agent:chassis": {"node": [{"address": "192.0.2.1", "system-id": "n1"}]}}`, 1},
		"as a list":  {`{"coe-agent:node": [{"address": "192.0.2.0", "system-id": "a"}, {"address": "192.0.2.1", "system-id": "b"}]}`, 2},
	} {
		t.Run(name, func(t *testing.T) {
			documents := []Document{{Name: "pods", Text: []byte(pods)}}
			if c.chassis != "" {
				documents = append(documents, Document{Name: "chassis", Text: []byte(c.chassis)})
			}
			running := &manifest.Set{}
			require.NoError(t, running.Read("nodes", strings.NewReader(nodes)))
			p, err := Compute(t.Context(), documents, Config{Layout: codec.LayoutNode, Pools: []dhcppool.Pool{pool}, Running: running})
			require.NoError(t, err)
			bound := 0
			for _, r := range p.Rows {
				if r.Table == "Gateway_Chassis" {
					bound++
				}
			}
			require.Equal(t, c.bound, bound)
		})
	}
}
