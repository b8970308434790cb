package bridge

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/agentstream"
	"github.com/coe-bridge/coe-bridge/coe/ipam"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/mapping/reconcile"
	"github.com/coe-bridge/coe-bridge/restconf/datastore"
)

// inUseTimeout bounds the reading of what the backend has.
const inUseTimeout = time.Minute

// inUse lists the interfaces and management ports that the backend has, for who
// chooses addresses and remembers nothing.
func inUse(ctx context.Context, backend reconcile.Backend) ([]ipam.InUse, []ipam.NodeInUse, error) {
	ctx, cancel := context.WithTimeout(ctx, inUseTimeout)
	defer cancel()
	model, err := backend.Read(ctx)
	if err != nil {
		return nil, nil, err
	}
	return interfacesInUse(model), nodesInUse(model), nil
}

func nodesInUse(model netvirt.Model) (all []ipam.NodeInUse) {
	for _, o := range model {
		if p, ok := o.(netvirt.ManagementPort); ok {
			all = append(all, ipam.NodeInUse{Node: p.Node, Address: p.Address})
		}
	}
	return all
}

func interfacesInUse(model netvirt.Model) []ipam.InUse {
	found := map[string]*ipam.InUse{}
	for _, o := range model {
		if i, ok := o.(netvirt.Interface); ok {
			_, _, uid, _ := netvirt.ParseInterfaceName(i.Name)
			found[i.Name] = &ipam.InUse{
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
	all := make([]ipam.InUse, 0, len(found))
	for _, u := range found {
		all = append(all, *u)
	}
	return all
}

// confirmedKeys lists the interfaces that the backend was known to have.
func confirmedKeys(ctx context.Context, records *datastore.Records) ([]coe.LeaseKey, error) {
	all, err := records.Load(ctx)
	if err != nil {
		return nil, err
	}
	keys := make([]coe.LeaseKey, 0, len(all))
	for name := range all {
		if key, ok := agentstream.KeyOf(name); ok {
			keys = append(keys, key)
		}
	}
	return keys, nil
}

// vni is the VNI that was chosen for an elan-instance; 0 where its segment has none.
func vni(e netvirt.ELANInstance) uint32 {
	if e.SegmentType == netvirt.SegmentVXLAN || e.SegmentType == netvirt.SegmentGRE {
		return e.SegmentationID
	}
	return 0
}

// distinguisher is the n of a route distinguisher "100:n"; 0 for any other.
func distinguisher(v netvirt.VPNInstance) uint32 {
	number, ok := strings.CutPrefix(v.RouteDistinguisher, "100:")
	n, err := strconv.ParseUint(number, 10, 32)
	if !ok || err != nil {
		return 0
	}
	return uint32(n)
}
