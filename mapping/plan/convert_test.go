package plan_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/mapping/plan"
)

// TestConvert leaves out DHCP of interfaces, and the ports of nodes in elan-instances, which only one backend has without isolation.
func TestConvert(t *testing.T) {
	kinds := func(more ...netvirt.Kind) netvirt.KindSet {
		return netvirt.NewKindSet(append(more, netvirt.KindInterface, netvirt.KindNodePort)...)
	}
	front := netvirt.Interface{Name: "web:front", Namespace: "web", Pod: "front"}
	offered := front
	offered.DHCP = true
	ovn := plan.Side{Kinds: kinds(netvirt.KindSubnet), Model: netvirt.Model{}}
	odl := plan.Side{Kinds: kinds(), Model: netvirt.Model{}, Limits: netvirt.Limits{NoDHCP: true, NodesBalance: true}}
	subnet, port := netvirt.Subnet{ELAN: "web"}, netvirt.NodePort{}
	ovn.Model[offered.Key()], ovn.Model[subnet.Key()] = offered, subnet
	odl.Model[port.Key()] = port

	c := plan.Convert(ovn, odl)
	require.Len(t, c.Changes, 1)
	require.Equal(t, front, c.Changes[0].New)
	require.Equal(t, map[netvirt.Kind]int{netvirt.KindSubnet: 1}, c.Lost)

	odl.Model[front.Key()] = front
	for _, c := range []*plan.Conversion{plan.Convert(ovn, odl), plan.Convert(odl, ovn)} {
		require.Empty(t, c.Changes)
		require.Equal(t, 1, c.Same)
	}
}
