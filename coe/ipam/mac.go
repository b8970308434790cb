package ipam

import (
	"crypto/sha256"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/journal"
	"github.com/coe-bridge/coe-bridge/dhcppool"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// macs has the owners of the MAC addresses of a layer 2 network: records of leases, and descriptions of other owners. The
// network is an elan. With Config.NodeBlocks it is a node, and also has the gateways of the node.
type macs map[string]string

// free reports whether an owner has or can get a MAC address.
func (m macs) free(mac, owner string) bool { return m[mac] == "" || m[mac] == owner }

func gatewayMAC(gateway netip.Addr) string { return netvirt.GatewayMAC(gateway).String() }

func gatewayOwner(gateway netip.Addr) string { return "gateway " + gateway.String() }

// newMACs returns the macs of a new elan on a node.
func (a *Assigner) newMACs(node netip.Addr) macs {
	if m := a.macsOn(node); m != nil {
		return m
	}
	m := macs{}
	if a.cfg.Nodes.Ports {
		m[netvirt.NodePortMAC(node)] = "port of node " + node.String()
	}
	if a.cfg.NodeBlocks {
		for _, gateway := range []netip.Addr{dhcppool.LinkGateway4, dhcppool.LinkGateway6} {
			m[gatewayMAC(gateway)] = gatewayOwner(gateway)
		}
	}
	return m
}

// macsOn returns the macs that the elans of a node share; nil if each has its own, or the node has none.
func (a *Assigner) macsOn(node netip.Addr) macs {
	if a.cfg.NodeBlocks {
		for e := range a.elansOn[node] {
			return e.macs
		}
	}
	return nil
}

// gatewayFits reports whether no other owner has the MAC address of a gateway on the node of a new block.
func (a *Assigner) gatewayFits(holder dhcppool.ELAN, gateway netip.Addr) bool {
	node, err := netip.ParseAddr(holder.Own)
	if err != nil {
		node, _, _ = netvirt.ParseELANName(holder.Name)
	}
	return a.macsOn(node).free(gatewayMAC(gateway), gatewayOwner(gateway))
}

// countGateway adds n to the number of the records of blocks with the gateway of a block on its node. The MAC address of
// the gateway is taken as long as there is one.
func (a *Assigner) countGateway(b *coe.Block, n int) {
	node, _, err := netvirt.ParseELANName(b.ELAN)
	m := a.macsOn(node)
	if err != nil || m == nil {
		return
	}
	key := nodeGateway{node, b.Gateway}
	mac, owner := gatewayMAC(b.Gateway), gatewayOwner(b.Gateway)
	switch a.gateways[key] += n; {
	case a.gateways[key] > 0:
		m[mac] = owner
	default:
		delete(a.gateways, key)
		if m[mac] == owner && b.Gateway != dhcppool.LinkGateway4 && b.Gateway != dhcppool.LinkGateway6 {
			delete(m, mac)
		}
	}
}

// takeMAC makes a lease the owner of its MAC address, unless it has another owner. A living lease
// replaces a released one.
func (a *Assigner) takeMAC(e *elan, l *coe.Lease) {
	owner := e.macs[l.MAC]
	if had := a.leases[journal.LeaseOf(owner)]; owner == "" || journal.IsLease(owner) && had != nil && had.Released != 0 && l.Released == 0 {
		e.macs[l.MAC] = journal.LeaseRecord(l.Key())
	}
}

// macTaken returns an error if a living lease cannot keep its MAC address, because its network has another owner of it. Only
// a change of Config.NodeBlocks can cause this.
func (a *Assigner) macTaken(e *elan, l *coe.Lease) error {
	if !a.cfg.NodeBlocks || l.Released != 0 || l.MAC == "" || e.macs.free(l.MAC, journal.LeaseRecord(l.Key())) {
		return nil
	}
	return fmt.Errorf("MAC address %s is that of %s, on the same node: in the layout node of OVN all pods of a node are on one switch; "+
		"delete one of the two pods, or use --ovn-layout elan", l.MAC, a.macOwner(e.macs[l.MAC]))
}

// macOwner describes an owner of a MAC address.
func (a *Assigner) macOwner(owner string) string {
	if !journal.IsLease(owner) {
		return owner
	}
	l := a.leases[journal.LeaseOf(owner)]
	if l == nil {
		return "pod " + journal.LeaseOf(owner).PodUID
	}
	return fmt.Sprintf("pod %s/%s (%s)", l.Namespace, l.Pod, l.PodUID)
}

// chooseMAC sets the MAC address of a lease, unique in its elan, and with Config.NodeBlocks on its node. For a primary
// interface it is the MAC address that the source requests (port-mac-address). Otherwise it is the one that the lease had
// before with the same addresses, or one made from the first address. If the requested MAC address has another owner, the
// request stays denied until the lease changes. So the MAC address of a running pod does not change when the owner is
// deleted.
func (a *Assigner) chooseMAC(e *elan, p *coe.Pod, l, old *coe.Lease) {
	free := func(mac string) bool { return e.macs.free(mac, journal.LeaseRecord(l.Key())) }
	same := old != nil && old.Namespace == l.Namespace && old.Node == l.Node && slices.Equal(old.Addresses, l.Addresses)
	wanted := unicastMAC(p.MAC)
	if !l.Primary {
		wanted = ""
	}
	l.DeniedMAC, l.DeniedBy = "", ""
	switch {
	case wanted == "":
	case same && wanted == old.DeniedMAC:
		l.DeniedMAC, l.DeniedBy = wanted, old.DeniedBy
	case !free(wanted):
		l.DeniedMAC, l.DeniedBy = wanted, a.macOwner(e.macs[wanted])
	}
	switch {
	case wanted != "" && l.DeniedMAC == "":
		l.MAC = wanted
	case same && free(old.MAC):
		l.MAC = old.MAC
	default:
		l.MAC = freeMAC(l.Addresses[0].Address, free)
	}
}

// freeMAC returns a free MAC address made from an address. If addressMAC of the address is not
// free, it tries the hash of the address, then the hash of that hash, and so on.
func freeMAC(addr netip.Addr, free func(string) bool) string {
	mac := addressMAC(addr)
	for seed := addr.AsSlice(); !free(mac); {
		sum := sha256.Sum256(seed)
		seed, mac = sum[:], hardware(sum[:4])
	}
	return mac
}

// unicastMAC returns a MAC address in lower case with colons. It returns an empty text if s is
// not a MAC address that an interface can have.
func unicastMAC(s string) string {
	mac, err := net.ParseMAC(s)
	if err != nil || len(mac) != 6 || mac[0]&1 != 0 || slices.Max(mac) == 0 {
		return ""
	}
	return mac.String()
}

// addressMAC returns the MAC address of 0a:58 and an IPv4 address, or of 0a:58 and 4 bytes of the
// hash of an IPv6 address.
func addressMAC(addr netip.Addr) string {
	if addr.Is4() {
		return hardware(addr.AsSlice())
	}
	sum := sha256.Sum256(addr.AsSlice())
	return hardware(sum[:4])
}

func hardware(last4 []byte) string {
	return net.HardwareAddr(append([]byte{0x0a, 0x58}, last4...)).String()
}
