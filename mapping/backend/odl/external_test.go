package odl_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/odlfake"
	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/odltest"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// placed is an external entry.
type placed struct {
	top, list, key string
	value          map[string]any
}

const network, port = "7cd2b6bb-6e3a-4c0c-8d54-5f4c6c1f2d10", "0a1b2c3d-6e3a-4c0c-8d54-5f4c6c1f2d11"

// ofOthers lists entries of Neutron and of an operator.
func ofOthers() []placed {
	return []placed{
		{"elan:elan-instances", "elan-instance", network, map[string]any{
			"elan-instance-name": network, "segment-type": "elan:segment-type-vxlan", "segmentation-id": 12, "description": "private",
		}},
		{"elan:elan-instances", "elan-instance", "10.0.0.1:lab", map[string]any{"elan-instance-name": "10.0.0.1:lab", "description": "Eve's, keep out"}},
		{"elan:elan-instances", "elan-instance", "192.168.33.12:unmarked", map[string]any{"elan-instance-name": "192.168.33.12:unmarked"}},
		{"elan:elan-interfaces", "elan-interface", port, map[string]any{"name": port, "elan-instance-name": network}},
		{"elan:elan-interfaces", "elan-interface", "s1-eth1:100", map[string]any{"name": "s1-eth1:100", "elan-instance-name": "lab"}},
		{"ietf-interfaces:interfaces", "interface", port, map[string]any{
			"name": port, "type": "iana-if-type:l2vlan", "enabled": true, "odl-interface:l2vlan-mode": "trunk", "odl-interface:parent-interface": "tap0a1b2c3d-6e",
		}},
		{"ietf-interfaces:interfaces", "interface", "tun95fee4d7132", map[string]any{"name": "tun95fee4d7132", "type": "iana-if-type:tunnel", "enabled": true}},
		{"ietf-interfaces:interfaces", "interface", "s1-eth1:100", map[string]any{
			"name": "s1-eth1:100", "type": "iana-if-type:l2vlan", "enabled": true, "description": "uplink", "odl-interface:parent-interface": "s1-eth1",
		}},
		{"l3vpn:vpn-instances", "vpn-instance", network, map[string]any{
			"vpn-instance-name": network, "ipv4-family": map[string]any{"route-distinguisher": []any{"100:7"}},
		}},
		{"l3vpn:vpn-instances", "vpn-instance", "blue", map[string]any{
			"vpn-instance-name": "blue", "description": "an operator's", "ipv4-family": map[string]any{"route-distinguisher": []any{"100:8"}},
		}},
		{"l3vpn:vpn-interfaces", "vpn-interface", port, map[string]any{
			"name": port, "vpn-instance-names": []any{map[string]any{"vpn-name": network, "associated-subnet-type": "V4Subnet"}},
			"odl-l3vpn:adjacency": []any{map[string]any{
				"ip_address": "10.1.1.5/32", "adjacency_type": "primary-adjacency", "subnet_id": "b498b7ae-4cbd-3563-b75d-7eaf444510c6", "subnet_gateway_ip": "10.1.1.1",
			}},
		}},
		{"network-topology:network-topology", "topology", "flow:1", map[string]any{"topology-id": "flow:1", "node": []any{map[string]any{"node-id": "openflow:1"}}}},
		{"odl-nat:floating-ip-info", "router-ports", network, map[string]any{
			"router-id": network, "ports": []any{map[string]any{
				"port-name": port, "internal-to-external-port-map": []any{map[string]any{"internal-ip": "10.1.1.5", "external-ip": "172.24.4.3"}},
			}},
		}},
	}
}

func place(f *fake, all []placed) {
	for _, p := range all {
		f.Set(p.top, p.list, p.key, p.value)
	}
}

func untouched(t *testing.T, f *fake, all []placed) {
	t.Helper()
	for _, p := range all {
		require.Equal(t, p.value, f.Entry(p.top, p.list, p.key), "%s %s", p.top, p.key)
	}
}

// TestOthersAreLeftAlone: entries of Neutron and of an operator are never read, changed or
// deleted.
func TestOthersAreLeftAlone(t *testing.T) {
	for _, release := range []odlfake.Release{odlfake.Oxygen, without(odlfake.Oxygen), odlfake.Neon, without(odlfake.Neon)} {
		b, f := start(t, release)
		all := ofOthers()
		place(f, all)
		for seed := range uint64(4) {
			write(t, b, small(b, seed, 10))
			untouched(t, f, all)
		}
		write(t, b, netvirt.Model{})
		untouched(t, f, all)
		have, err := b.Read(t.Context())
		require.NoError(t, err)
		require.Empty(t, have)
	}
}

// TestNameIsTaken: a wanted entry is rejected if an external entry has its name. Entries that
// refer to it are rejected too, and all others are written.
func TestNameIsTaken(t *testing.T) {
	for name, p := range map[string]placed{
		"vpn-instance":  {"l3vpn:vpn-instances", "vpn-instance", "default", map[string]any{"vpn-instance-name": "default", "description": "an operator's"}},
		"other targets": {"l3vpn:vpn-instances", "vpn-instance", "default", map[string]any{"vpn-instance-name": "default", "ipv4-family": map[string]any{"route-distinguisher": []any{"65000:1"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			b, f := start(t, odlfake.Oxygen)
			place(f, []placed{p})
			want := odltest.PodsOf("default", "kube-system")
			err := b.Write(t.Context(), netvirt.Diff(netvirt.Model{}, want))
			var rejected *netvirt.RejectedError
			require.ErrorAs(t, err, &rejected)
			require.Equal(t, []netvirt.Key{{Kind: netvirt.KindVPNInstance, Name: "default"}}, rejected.Keys)
			require.ErrorContains(t, err, "an external entry with this name exists")
			untouched(t, f, []placed{p})

			have, err := b.Read(t.Context())
			require.NoError(t, err)
			for k, o := range want {
				needs := o.Scope() == "default" && (k.Kind == netvirt.KindVPNInstance || k.Kind == netvirt.KindVPNInterface || k.Kind == netvirt.KindAdjacency)
				require.Equal(t, !needs, have[k] == o, "%s", k)
			}
		})
	}
}

// TestTakenOver: entries with the names of Netvirt COE Integration and without a description,
// as Oxygen's own renderer writes them, become ours when they are wanted.
func TestTakenOver(t *testing.T) {
	b, f := start(t, odlfake.Oxygen)
	f.Set("elan:elan-instances", "elan-instance", "192.168.33.10:default", map[string]any{
		"elan-instance-name": "192.168.33.10:default", "segment-type": "elan:segment-type-vxlan", "segmentation-id": 7, "elan-tag": 5000,
	})
	f.Set("l3vpn:vpn-instances", "vpn-instance", "default", map[string]any{
		"vpn-instance-name": "default", "type": "l3", "l3vni": 0,
		"ipv4-family": map[string]any{"vpnTargets": map[string]any{}, "route-distinguisher": []any{"100:1"}},
	})
	f.Set("ietf-interfaces:interfaces", "interface", "default:pod-1", map[string]any{
		"name": "default:pod-1", "enabled": true, "type": "iana-if-type:l2vlan", "odl-interface:l2vlan-mode": "trunk",
	})
	f.Set("elan:elan-interfaces", "elan-interface", "default:pod-1", map[string]any{"name": "default:pod-1", "elan-instance-name": "192.168.33.10:default"})
	have, err := b.Read(t.Context())
	require.NoError(t, err)
	require.Empty(t, have)

	write(t, b, odltest.PodsOf("default"))
	write(t, b, netvirt.Model{})
	require.Empty(t, f.Keys("ietf-interfaces:interfaces"))
	require.Empty(t, f.Keys("l3vpn:vpn-instances"))
}
