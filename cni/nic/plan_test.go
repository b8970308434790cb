package nic

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cni/ovs"
)

// ready is a NIC that can join.
func ready() state {
	return state{
		nic:     link{name: "eth0", index: 2, up: true, ethernet: true, mac: "02:00:00:00:00:01", mtu: 1500},
		bridge:  link{name: "breth0"},
		bridges: map[string]ovs.Bridge{"br-int": {Ports: []string{"br-int", "tap1"}}},
	}
}

func TestCheckJoin(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*state)
		says   string
	}{
		{"no such NIC", func(s *state) { s.nic.index = 0 }, "no such link"},
		{"a bridge", func(s *state) { s.bridges["eth0"] = ovs.Bridge{} }, "eth0 is a bridge of the switch, not a NIC"},
		{"not Ethernet", func(s *state) { s.nic.ethernet = false }, "eth0 is not an Ethernet link"},
		{"wireless", func(s *state) { s.nic.wireless = true }, "eth0 is wireless"},
		{"bond", func(s *state) { s.nic.master = "bond bond0" }, "eth0 belongs to bond bond0: name that link"},
		{"macvlan", func(s *state) { s.nic.users = []string{"macvlan0"} }, "macvlan0 uses eth0, and cannot use a port of a bridge"},
		{"down", func(s *state) { s.nic.up = false }, "eth0 is down: set it up"},
		{"long name", func(s *state) { s.bridge.name = "brenp129s0f0np00" }, "brenp129s0f0np00, is longer than the kernel's limit of 15 characters"},
		{"in another bridge", func(s *state) { s.bridges["br-ex"] = ovs.Bridge{Interfaces: map[string]bool{"eth0": true}} }, "eth0 is a port of bridge br-ex: remove it there first"},
		{"bridge of others", func(s *state) { s.bridges["breth0"] = ovs.Bridge{} }, "a bridge breth0 that coe-bridge has not created"},
		{"bridge without a link", func(s *state) { s.bridges["breth0"] = ovs.Bridge{NIC: "eth0"} }, "no link of bridge breth0: check that ovs-vswitchd runs"},
		{"link of others", func(s *state) { s.bridge.index = 7 }, "a link breth0, which is not a bridge of the switch"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := ready()
			require.NoError(t, checkJoin(s))
			c.change(&s)
			require.ErrorContains(t, checkJoin(s), c.says)
		})
	}
}

func TestCheckLeave(t *testing.T) {
	joined := func() state {
		s := ready()
		s.bridges["breth0"] = ovs.Bridge{NIC: "eth0", Ports: []string{"breth0", "eth0"}}
		s.bridge.index = 7
		return s
	}
	for _, c := range []struct {
		name   string
		change func(*state)
		says   string
	}{
		{"no such NIC", func(s *state) { s.nic.index = 0 }, "the node has no link eth0"},
		{"bridge of others", func(s *state) { s.bridges["breth0"] = ovs.Bridge{} }, "was not created by coe-bridge gateway nics-to-bridge"},
		{"used by OVN", func(s *state) { s.mappings = "physnet1:br-x,external:breth0" }, "OVN's network external uses bridge breth0"},
		{"other ports", func(s *state) {
			s.bridges["breth0"] = ovs.Bridge{NIC: "eth0", Ports: []string{"breth0", "eth0", "vnet3"}}
		}, "bridge breth0 has other ports, vnet3 among them"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := joined()
			require.NoError(t, checkLeave(s))
			c.change(&s)
			require.ErrorContains(t, checkLeave(s), c.says)
		})
	}
}

func TestNICOf(t *testing.T) {
	bridges := map[string]ovs.Bridge{"breth0": {NIC: "eth0"}, "br-ex": {}}
	for bridge, want := range map[string]string{"breth0": "eth0", "breth1": "eth1"} {
		nic, err := nicOf(bridge, bridges)
		require.NoError(t, err)
		require.Equal(t, want, nic)
	}
	_, err := nicOf("br-ex", bridges)
	require.ErrorContains(t, err, "was not created by coe-bridge")
	_, err = nicOf("eth0", bridges)
	require.ErrorContains(t, err, "the switch has no bridge eth0")
}

func TestReleasedAtBoot(t *testing.T) {
	m := New(Config{Units: t.TempDir()})
	require.False(t, m.ReleasedAtBoot())
	wants := filepath.Join(m.cfg.Units, "ovs-vswitchd.service.wants")
	require.NoError(t, os.Mkdir(wants, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(wants, ReleaseUnit), nil, 0o600))
	require.True(t, m.ReleasedAtBoot())
}

// TestAfterBoot: after a boot a NIC stays as it is until it has addresses.
func TestAfterBoot(t *testing.T) {
	address := Object{Kind: Address, Message: []byte{2, 24, 0, 0, 0, 0, 0, 0}}
	s := ready()
	s.record = &record{NIC: "eth0", Bridge: "breth0", Link: 7, Objects: []Object{address}}
	require.Empty(t, resumeSteps(s))

	s.bridges["breth0"] = ovs.Bridge{NIC: "eth0", Interfaces: map[string]bool{"breth0": true, "eth0": true}}
	steps := resumeSteps(s)
	require.Len(t, steps, 1)
	require.Equal(t, "remove port eth0 from bridge breth0", steps[0].String(), "in the bridge it could not be configured")

	s.nic.objects = []Object{address}
	require.NotEmpty(t, resumeSteps(s))

	s.nic.objects, s.record.sameBoot = nil, true
	require.NotEmpty(t, resumeSteps(s), "at the same boot the link was lost, and its addresses are in the record")
}
