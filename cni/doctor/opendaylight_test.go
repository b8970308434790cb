package doctor_test

import (
	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cni/doctor"
	"github.com/coe-bridge/coe-bridge/cni/ovs"
	"github.com/coe-bridge/coe-bridge/cni/uplink"
)

// A node with OVN lacks the settings for OpenDaylight: its switch has no manager, ovn-controller
// runs, and there is no tunnel address.
func brokenOpenDaylight(n *node) {
	config := func(change ...func(*uplink.Config)) doctor.Config {
		cfg := n.config()
		var err error
		cfg.OVN, cfg.Uplink = false, n.uplink(n.bridge.URL(), change...)
		cfg.Switch, err = ovs.New(ovs.Config{Endpoint: n.host.OVSDB.Remote, Controller: ovs.OpenDaylight, Log: n.quiet})
		require.NoError(n.t, err)
		return cfg
	}
	found := n.find(config(), levels{
		"OpenDaylight": doctor.Failed, "ovn-controller": doctor.Failed, "tunnels": doctor.Failed, "mtu": doctor.Unknown,
	})
	require.Contains(n.t, found["OpenDaylight"].Found, "the switch has no manager")
	require.Contains(n.t, found["ovn-controller"].Mend, "systemctl disable --now ovn-controller")
	require.Contains(n.t, found["tunnels"].Found, "no other_config:local_ip")
	for address, says := range map[string]string{"192.0.2.99": "not an address of this node", "here": "here"} {
		n.vsctl("--no-wait", "set", "Open_vSwitch", ".", "other_config:local_ip="+address)
		require.Contains(n.t, ill(doctor.Examine(n.t.Context(), config()))["tunnels"].Found, says)
	}
	n.vsctl("--no-wait", "set", "Open_vSwitch", ".", "other_config:local_ip="+n.host.Address.String())
	n.find(config(), levels{"OpenDaylight": doctor.Failed, "ovn-controller": doctor.Failed})

	found = n.find(config(func(cfg *uplink.Config) { cfg.OpenDaylight = true }), levels{
		"OpenDaylight": doctor.Failed, "ovn-controller": doctor.Failed, "backends": doctor.Failed,
	})
	require.Equal(n.t, uplink.ErrServesOVN.Error(), found["backends"].Found)
	n.vsctl("--no-wait", "remove", "Open_vSwitch", ".", "other_config", "local_ip")
}
