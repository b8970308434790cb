package codec

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// codec turns the objects of a unit into its entries and back: decode(encode(o)) == o.
type codec struct {
	form Form
	// elans returns our known elan-instances whose namespace may have the vpn-instance of
	// that name.
	elans func(vpn string) []string
	// vpnOf returns the name of the vpn-instance that a namespace has or would get.
	vpnOf func(namespace string) string
	// transits holds the Transits by vpn-instance.
	transits map[string]string
	// Networks holds the NodeNetworks by prefix.
	networks map[netip.Prefix]netvirt.NodeNetwork
	// acls holds the direction in which an ACL isolates, or none, by name; groups holds the
	// RemoteGroups by name.
	acls   map[string]netvirt.Direction
	groups map[string]netvirt.RemoteGroup
	// open holds the directions whose list that permits everything is as it must be.
	open    map[netvirt.Direction]bool
	Subnets *subnets
}

// Encode returns the entries of a unit. A damaged entry stays as it is, until its main object
// changes to a wanted one.
func (c *codec) Encode(u Unit, objects []netvirt.Object, there Content) (Content, error) {
	var (
		out Content
		err error
	)
	switch u.Kind {
	case netvirt.KindELANInstance:
		out[ELANInstances], err = encodeELANInstance(objects)
	case netvirt.KindTransit:
		out[VPNInstances] = c.encodeTransit(objects)
	case netvirt.KindVPNInstance:
		out[VPNInstances], err = c.encodeVPNInstance(objects)
	case netvirt.KindACL:
		out[AccessLists] = c.encodeAccessList(u, objects)
	case netvirt.KindFloatingIP:
		out[floatingIPs] = encodeFloatingIPs(u, objects)
	case netvirt.KindNodeNetwork:
		out[ELANInstances] = encodeNetwork(objects)
	case netvirt.KindManagementPort:
		out = c.encodeManagementPort(objects)
	case netvirt.KindNodePort:
		out = c.encodeNodePort(objects)
	default:
		out, err = c.encodeInterface(u, objects, there)
	}
	for _, o := range objects {
		switch {
		case !isDamaged(o):
		case OfNode(u.Kind):
			out = there
		default:
			l := listOf(o.Key().Kind)
			out[l] = there[l]
		}
	}
	return out, err
}

// head returns the object of type T of a unit; found is false if there is none.
func head[T netvirt.Object](objects []netvirt.Object) (head T, found bool) {
	for _, o := range objects {
		if head, found = o.(T); found {
			break
		}
	}
	return head, found
}

// each returns the objects of type T, sorted by address and key.
func each[T netvirt.Object](objects []netvirt.Object, address func(T) netip.Addr) []T {
	var all []T
	for _, o := range objects {
		if t, ok := o.(T); ok {
			all = append(all, t)
		}
	}
	slices.SortFunc(all, func(a, b T) int {
		return cmp.Or(address(a).Compare(address(b)), cmp.Compare(a.Key().Name, b.Key().Name))
	})
	return all
}

func encodeELANInstance(objects []netvirt.Object) (Entry, error) {
	o, ok := head[netvirt.ELANInstance](objects)
	if !ok {
		return nil, nil
	}
	if _, _, err := netvirt.ParseELANName(o.Name); err != nil {
		return nil, err
	}
	return &ELANInstance{
		Name: o.Name, SegmentType: "elan:" + string(o.SegmentType), SegmentationID: o.SegmentationID, Description: describe(),
	}, nil
}

func (c *codec) encodeVPNInstance(objects []netvirt.Object) (Entry, error) {
	o, ok := head[netvirt.VPNInstance](objects)
	if !ok {
		return nil, nil
	}
	if !netvirt.MayName(o.Name, o.Namespace) {
		return nil, fmt.Errorf("vpn-instance %s: it does not have the name of namespace %s", o.Name, o.Namespace)
	}
	var words []word
	if o.Namespace != o.Name {
		words = append(words, word{"namespace", o.Namespace})
	}
	if o.Transit != "" {
		words = append(words, word{"transit", o.Transit})
	}
	return c.vpnEntry(o.Name, o.RouteDistinguisher, o.Transit, words), nil
}

func (c *codec) encodeTransit(objects []netvirt.Object) Entry {
	for _, o := range objects {
		t := o.(netvirt.Transit)
		return c.vpnEntry(TransitPrefix+t.RouteTarget, t.RouteTarget, "", nil)
	}
	return nil
}

// vpnEntry returns a vpn-instance in the controller's form. The flat form has no description:
// there an export-only route target names the Transit. That target has no other effect,
// because there are no routes to export.
func (c *codec) vpnEntry(name, distinguisher, transit string, words []word) Entry {
	distinguishers, to := []string{distinguisher}, targets{[]target{{distinguisher, "both"}}}
	if c.form != Flat {
		return &vpnInstance{Name: name, Type: "l3", Description: describe(words...), IPv4: family{RouteDistinguishers: distinguishers, Targets: to}}
	}
	if transit != "" {
		to.Target = append(to.Target, target{transit, exportOnly})
	}
	to.Normalize()
	return &flatVPNInstance{Name: name, RouteDistinguishers: distinguishers, Targets: to}
}

const exportOnly = "export_extcommunity"

// transitOf returns the Transit that the entry of a vpn-instance names.
func transitOf(e Entry) string {
	switch e := e.(type) {
	case *vpnInstance:
		transit, _ := find(e.Description, "transit")
		return transit
	case *flatVPNInstance:
		for _, t := range e.Targets.Target {
			if t.Type == exportOnly {
				return t.Value
			}
		}
	}
	return ""
}

func (c *codec) encodeInterface(u Unit, objects []netvirt.Object, there Content) (Content, error) {
	var out Content
	if _, _, _, err := netvirt.ParseInterfaceName(u.Name); err != nil {
		return out, err
	}
	addresses := each(objects, func(m netvirt.MACEntry) netip.Addr { return m.Address })
	if o, ok := head[netvirt.Interface](objects); ok {
		out[Interfaces] = c.encodeIETFInterface(o, objects, addresses, there)
	}
	if o, ok := head[netvirt.ELANInterface](objects); ok {
		e, err := encodeELANInterface(o, addresses)
		if err != nil {
			return out, err
		}
		out[ELANInterfaces] = e
	}
	if o, ok := head[netvirt.VPNInterface](objects); ok {
		out[VPNInterfaces] = c.encodeVPNInterface(o, objects)
	}
	return out, nil
}

// encodeIETFInterface puts the UIDs of the pod and of the interface into the description, whether it has DHCP, and the
// names of its ACLs and RemoteGroups.
func (c *codec) encodeIETFInterface(o netvirt.Interface, objects []netvirt.Object, addresses []netvirt.MACEntry, there Content) Entry {
	words := []word{{"pod", o.PodUID}}
	if o.UID != o.PodUID {
		words = append(words, word{"interface", o.UID})
	}
	if o.DHCP {
		words = append(words, word{"dhcp", "true"})
	}
	e := &IETFInterface{Name: o.Name, Type: "iana-if-type:l2vlan", Enabled: true, L2VLANMode: "trunk", Parent: o.ParentInterface}
	e.Pairs = addressPairs(addresses, there)
	words = append(words, c.secure(e, objects)...)
	e.Normalize()
	e.Description = describe(words...)
	return e
}

// encodeELANInterface puts the lowest address of a MAC address into ip-prefix, since the MAC
// address is the key of static-mac-entries. It puts the other addresses and the host name
// of the node into the description.
func encodeELANInterface(o netvirt.ELANInterface, addresses []netvirt.MACEntry) (Entry, error) {
	e := &ELANInterface{Name: o.Name, ELAN: o.ELAN}
	var words []word
	if o.Chassis != "" {
		words = append(words, word{"chassis", o.Chassis})
	}
	taken := map[string]bool{}
	for _, m := range addresses {
		if taken[m.MAC] {
			words = append(words, word{"also", m.Address.String() + "@" + m.MAC})
			continue
		}
		taken[m.MAC] = true
		e.MACEntries = append(e.MACEntries, macEntry{m.MAC, m.Address.String()})
	}
	e.Normalize()
	if e.Description = describe(words...); len(e.Description) > maxDescription {
		return nil, fmt.Errorf("elan-interface %s: the host name of its node and its further addresses do not fit into a description of %d characters; use a shorter host name, or fewer addresses", o.Name, maxDescription)
	}
	return e, nil
}

func (c *codec) encodeVPNInterface(o netvirt.VPNInterface, objects []netvirt.Object) Entry {
	e := &VPNInterface{Name: o.Name, moved: c.form != Nested}
	var v4, v6 bool
	for _, a := range each(objects, func(a netvirt.Adjacency) netip.Addr { return a.Address }) {
		e.Adjacencies = append(e.Adjacencies, adjacency{
			Address: netip.PrefixFrom(a.Address, a.Address.BitLen()).String(), MAC: a.MAC, Type: primary,
			SubnetID: c.Subnets.id(subnet{a.ELAN, a.Network}), Gateway: a.Gateway.String(),
		})
		v4, v6 = v4 || a.Address.Is4(), v6 || !a.Address.Is4()
	}
	vpn := o.VPN
	if transit := c.transits[o.VPN]; transit != "" {
		vpn = TransitPrefix + transit
	}
	e.VPNs = []VPNName{{vpn, subnetType(v4, v6)}}
	e.Normalize()
	return e
}

func subnetType(v4, v6 bool) string {
	switch {
	case v4 && v6:
		return "V4AndV6Subnets"
	case v6:
		return "V6Subnet"
	}
	return "V4Subnet"
}

func encodeFloatingIPs(u Unit, objects []netvirt.Object) Entry {
	ports := map[string][]natPair{}
	for _, f := range objects {
		if f, ok := f.(netvirt.FloatingIP); ok {
			ports[f.Port] = append(ports[f.Port], natPair{f.Internal.String(), f.External.String(), f.ExternalID})
		}
	}
	if len(ports) == 0 {
		return nil
	}
	e := &routerPorts{Router: u.Name}
	for name, pairs := range ports {
		e.Ports = append(e.Ports, routerPort{name, pairs})
	}
	e.Normalize()
	return e
}
