package mapping_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/physical"
	"github.com/coe-bridge/coe-bridge/mapping"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/test/lab/synth"
)

// The physical network of a namespace decides on the segment of its elan-instances. A pod without an address there, an interface
// that requests another segment, and a backend without physical networks are problems.
func TestPhysicalNetwork(t *testing.T) {
	for name, c := range map[string]struct {
		physical string
		unable   bool
		iface    coe.PodInterface
		want     netvirt.ELANInstance
		problem  string
	}{
		"VLAN": {
			physical: "default=plant,vlan=100,subnet=10.11.0.0/16",
			want:     netvirt.ELANInstance{SegmentType: netvirt.SegmentVLAN, SegmentationID: 100, PhysicalNetwork: "plant", Subnets: "10.11.0.0/16"},
		},
		"FLAT": {
			physical: "default=plant,subnet=10.11.0.0/16,subnet=fd11::/64", iface: coe.PodInterface{NetworkType: "FLAT"},
			want: netvirt.ELANInstance{SegmentType: netvirt.SegmentFlat, PhysicalNetwork: "plant", Subnets: "10.11.0.0/16,fd11::/64"},
		},
		"of another namespace": {
			physical: "other=plant,subnet=10.11.0.0/16", want: netvirt.ELANInstance{SegmentType: netvirt.SegmentVXLAN, SegmentationID: 70000},
		},
		"another segment": {
			physical: "default=plant,vlan=100,subnet=10.11.0.0/16", iface: coe.PodInterface{NetworkType: "VLAN", SegmentationID: 7},
			want:    netvirt.ELANInstance{SegmentType: netvirt.SegmentVLAN, SegmentationID: 100, PhysicalNetwork: "plant", Subnets: "10.11.0.0/16"},
			problem: "network-type VLAN and segmentation-id 7 of interface " + uid1 + " have no effect: the namespace has the physical network plant, VLAN 100",
		},
		"no address there": {
			physical: "default=plant,subnet=10.12.0.0/16",
			want:     netvirt.ELANInstance{SegmentType: netvirt.SegmentFlat, PhysicalNetwork: "plant", Subnets: "10.12.0.0/16"},
			problem:  "does not reach the machines of physical network plant: it has no address in [10.12.0.0/16]",
		},
		"no physical networks": {
			physical: "default=plant,subnet=10.11.0.0/16", unable: true, want: netvirt.ELANInstance{SegmentType: netvirt.SegmentVXLAN, SegmentationID: 70000},
			problem: "the physical network plant has no effect, because the backend makes every network an overlay",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := physical.Parse(c.physical)
			require.NoError(t, err)
			s := settings
			s.Limits.NoPhysicalNetworks = c.unable
			require.NoError(t, s.Physical.Add(p))
			v := synth.OneNode()
			c.iface.UID = uid1
			synth.AddPod(&v, uid1, "busybox1", "10.11.2.28").Interfaces[0] = c.iface
			m, problems := mapping.Map(synth.WithVIPs(v), s)
			c.want.Name = "192.168.33.12:default"
			require.Equal(t, c.want, m[c.want.Key()])
			if c.problem == "" {
				require.Empty(t, problems)
				return
			}
			require.Len(t, problems, 1)
			require.Equal(t, coe.NotEnforced, problems[0].Reason)
			require.Contains(t, problems[0].Message, c.problem)
		})
	}
}
