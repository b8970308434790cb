package ovn_test

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// TestFlowsOfPods: a further pod on a switch costs ovn-northd few logical flows, and DHCP costs as many again.
func TestFlowsOfPods(t *testing.T) {
	n := &northd{t: t, lab: ovnhost.ForTest(t)}
	var err error
	n.b, err = ovn.New(ovn.Config{Endpoints: n.lab.NB.Remote}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(n.b.Close)

	const pods = 10
	n.write(n.with(bulk(1, 1, 1)...))
	before := n.flows(n.with())
	further := func(dhcp bool) float64 {
		var objects []netvirt.Object
		for i := range byte(pods) {
			for _, o := range podOf(100 + i) {
				if p, ok := o.(netvirt.Interface); ok {
					p.DHCP = dhcp
					o = p
				}
				objects = append(objects, o)
			}
		}
		return float64(n.flows(n.with(objects...))-before) / pods
	}
	plain, dhcp := further(false), further(true)
	t.Logf("logical flows of a further pod: %v, %v with DHCP", plain, dhcp)
	require.LessOrEqual(t, plain, 4.0)
	require.Greater(t, dhcp, plain)
}
