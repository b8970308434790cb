package packets

import (
	"errors"
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

const mtu = 1400

// podA and podB are on two hosts and one switch.
var (
	hosts = []string{"host1", "host2"}
	podA  = ovnhost.Pod{
		Host: "host1", Name: "web:a", UID: "1f0e1ac6-0000-4000-8000-00000000000a", PortName: "tapa",
		MAC: net.HardwareAddr{0x0a, 0, 0, 0, 1, 0x0a}, Address: netip.MustParsePrefix("10.1.0.10/24"),
	}
	podB = ovnhost.Pod{
		Host: "host2", Name: "web:b", UID: "1f0e1ac6-0000-4000-8000-00000000000b", PortName: "tapb",
		MAC: net.HardwareAddr{0x0a, 0, 0, 0, 1, 0x0b}, Address: netip.MustParsePrefix("10.1.0.11/24"),
	}
)

func ctl(t *testing.T, lab *ovnhost.Lab, args ...string) {
	t.Helper()
	_, err := lab.NBCtl(t.Context(), args...)
	require.NoError(t, err)
}

// labOfPods returns a lab with the pods, which reach each other.
func labOfPods(t *testing.T) *ovnhost.Lab {
	lab := ovnhost.ForTest(t, hosts...)
	ctl(t, lab, "ls-add", "sw")
	for _, p := range []ovnhost.Pod{podA, podB} {
		ctl(t, lab, "lsp-add", "sw", p.Name, "--", "lsp-set-addresses", p.Name, p.MAC.String()+" "+p.Address.Addr().String(), "--",
			"lsp-set-options", p.Name, "requested-chassis="+p.Host, "iface-id-ver="+p.UID)
		require.NoError(t, lab.Plug(t.Context(), p))
	}
	require.NoError(t, lab.Ping(t.Context(), podA.Name, podB.Address.Addr()))
	return lab
}

// TestKeep: packets that the switch drops for a moment are lost, or TCP sends them again. None is lost when OVN restarts.
func TestKeep(t *testing.T) {
	lab, ctx := labOfPods(t), t.Context()
	udp := Way{From: podA.Name, To: podB.Name, Address: podB.Address.Addr()}
	tcp := udp
	tcp.TCP = true
	streams := Streams{Lab: lab, Ways: []Way{udp, tcp}, MTU: mtu, Hosts: hosts}
	// Without this setting ovn-controller removes the flows of its switch when it starts, before it knows the new ones.
	host := lab.Host("host2")
	_, err := host.VSCtl(ctx, "set", "Open_vSwitch", ".", "external_ids:ovn-ofctrl-wait-before-clear=10000")
	require.NoError(t, err)
	text, err := streams.Keep(ctx, func() {
		require.NoError(t, errors.Join(host.Controller.Restart(ctx), lab.Northd.Restart(ctx), lab.Sync(ctx)))
	})
	require.NoError(t, err)
	t.Log(text)
	text, err = streams.Keep(ctx, func() {
		ctl(t, lab, "--wait=hv", "lsp-set-enabled", podB.Name, "disabled")
		_, err := lab.Exec(ctx, podA.Name, "ping", "-n", "-c", "3", "-W", "1", podB.Address.Addr().String())
		require.Error(t, err)
		ctl(t, lab, "--wait=hv", "lsp-set-enabled", podB.Name, "enabled")
	})
	require.ErrorContains(t, err, "packets are lost", text)
	require.ErrorContains(t, err, "of udp4")
	require.NotContains(t, err.Error(), "of tcp4")
	require.NotContains(t, err.Error(), "and 0 more on new connections")
	t.Log(err)
}

// TestKeepAway: a way is denied as long as a packet does not arrive.
func TestKeepAway(t *testing.T) {
	lab, ctx := labOfPods(t), t.Context()
	denied := Streams{
		Lab: lab, Ways: []Way{{From: podA.Name, To: podB.Name, Address: podB.Address.Addr(), Denied: true}}, MTU: mtu, Hosts: hosts,
	}
	ping := func() error {
		_, err := lab.Exec(ctx, podA.Name, "ping", "-n", "-c", "3", podB.Address.Addr().String())
		return err
	}
	ctl(t, lab, "--wait=hv", "acl-add", "sw", "from-lport", "1000", "udp.dst == 9999", "drop")
	text, err := denied.Keep(ctx, func() { require.NoError(t, ping()) })
	require.NoError(t, err)
	t.Log(text)
	_, err = denied.Keep(ctx, func() {
		ctl(t, lab, "--wait=hv", "acl-del", "sw")
		require.NoError(t, errors.Join(lab.ForgetFlows(ctx), ping()))
	})
	require.ErrorContains(t, err, "arrive where they are denied")
	t.Log(err)
}
