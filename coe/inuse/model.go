package inuse

import (
	"strconv"
	"strings"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// InModel returns the pod interfaces, and the ports of nodes with an address of the node network, of the model that a backend has.
func InModel(model netvirt.Model) ([]Interface, []Node) {
	return interfacesInUse(model), nodesInUse(model)
}

func nodesInUse(model netvirt.Model) (all []Node) {
	for _, o := range model {
		switch p := o.(type) {
		case netvirt.ManagementPort:
			all = append(all, Node{Node: p.Node, Address: p.Address})
		case netvirt.NodePort:
			if node, _, err := netvirt.ParseELANName(p.ELAN); err == nil && p.Edge.IsValid() {
				all = append(all, Node{Node: node, Address: p.Edge})
			}
		}
	}
	return all
}

func interfacesInUse(model netvirt.Model) []Interface {
	found := map[string]*Interface{}
	for _, o := range model {
		if i, ok := o.(netvirt.Interface); ok {
			_, _, uid, _ := netvirt.ParseInterfaceName(i.Name)
			found[i.Name] = &Interface{
				PodUID: i.PodUID, InterfaceUID: i.UID, Namespace: i.Namespace, Pod: i.Pod, Primary: uid == "",
			}
		}
	}
	for _, o := range model {
		a, ok := o.(netvirt.Adjacency)
		if !ok || found[a.Interface] == nil {
			continue
		}
		u := found[a.Interface]
		u.Node, _, _ = netvirt.ParseELANName(a.ELAN)
		u.MAC = a.MAC
		if e, ok := model[netvirt.ELANInstance{Name: a.ELAN}.Key()].(netvirt.ELANInstance); ok {
			u.VNI = vni(e)
		}
		u.Addresses = append(u.Addresses, coe.LeasedAddress{Address: a.Address, Network: a.Network, Gateway: a.Gateway})
		if n, ok := model[netvirt.Node{Address: u.Node}.Key()].(netvirt.Node); ok && a.Network.IsSingleIP() {
			if block := n.Gateways.Around(a.Gateway, a.Address); block.IsValid() {
				u.share(a.Gateway, block)
			}
		}
	}
	for _, o := range model {
		i, ok := o.(netvirt.VPNInterface)
		if !ok || found[i.Name] == nil {
			continue
		}
		if v, ok := model[netvirt.VPNInstance{Name: i.VPN}.Key()].(netvirt.VPNInstance); ok && v.Namespace == i.Namespace {
			found[i.Name].VPN, found[i.Name].RD = v.Name, distinguisher(v)
		}
	}
	all := make([]Interface, 0, len(found))
	for _, u := range found {
		all = append(all, *u)
	}
	return all
}

// vni returns the VNI of an elan-instance, or 0 if its segment has none.
func vni(e netvirt.ELANInstance) uint32 {
	if e.SegmentType == netvirt.SegmentVXLAN || e.SegmentType == netvirt.SegmentGRE {
		return e.SegmentationID
	}
	return 0
}

// distinguisher returns the n of a route distinguisher "100:n", or 0 for any other form.
func distinguisher(v netvirt.VPNInstance) uint32 {
	number, ok := strings.CutPrefix(v.RouteDistinguisher, "100:")
	n, err := strconv.ParseUint(number, 10, 32)
	if !ok || err != nil {
		return 0
	}
	return uint32(n)
}
