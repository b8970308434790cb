package operational

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/codec"
	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/controller"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// view is a state of the operational datastore. It is not changed after it was stored.
type view struct {
	elans map[string]bool
	vpns  map[string]uint64 // vpn-id by name
	ports map[string]port   // by interface
}

// port is the operational state of an interface.
type port struct {
	link
	elan, vpn string // that it is a member of
	addresses string // that it has in the vpn
	groups    groups
}

// link is the state of an interface in ietf-interfaces:interfaces-state.
type link struct {
	status string // "up", "down", …; empty until its port is plugged in
	node   string // openflow:SWITCH
	tag    uint64 // if-index, by which flows know the interface
	mac    string // of the port on the switch
}

// involved returns the interfaces that changes affect, including the interfaces of a
// vpn-instance that changes.
func (v *view) involved(changes []netvirt.Change) map[string]bool {
	all := map[string]bool{}
	for _, c := range changes {
		o := cmp.Or(c.New, c.Old)
		if u := codec.UnitOf(o); u.Kind == netvirt.KindInterface || codec.OfNode(u.Kind) {
			all[u.Name] = true
		}
		if vpn, ok := o.(netvirt.VPNInstance); ok {
			v.addMembers(all, vpn.Namespace)
		}
	}
	return all
}

// addMembers adds the interfaces of a namespace.
func (v *view) addMembers(to map[string]bool, namespace string) {
	for name := range v.ports {
		if strings.HasPrefix(name, namespace+":") {
			to[name] = true
		}
	}
}

// lacks returns what an object lacks. Netvirt can leave a port of a node out of elan-state and write its flows. So the ports of nodes need not be in it:
// agents see their flows (decision 107).
func (v *view) lacks(o netvirt.Object) string {
	switch o := o.(type) {
	case netvirt.Transit:
		return v.lacksVPN(codec.TransitPrefix + o.RouteTarget)
	case netvirt.VPNInstance:
		return v.lacksVPN(o.Name)
	case netvirt.ELANInstance:
		return v.lacksELAN(o.Name)
	case netvirt.NodeNetwork:
		return v.lacksELAN(codec.NetworkName(o.Prefix))
	case netvirt.ManagementPort:
		p := v.ports[o.Name()]
		return cmp.Or(p.lacks(), unless(strings.Contains(p.addresses, addressOf(o.Address, o.MAC)), noAddress))
	case netvirt.NodePort:
		p := v.ports[o.Name()]
		return cmp.Or(p.lacks(), unless(!o.Edge.IsValid() || strings.Contains(p.addresses, addressOf(o.Edge, o.MAC)), noAddress))
	case netvirt.Interface:
		return v.ports[o.Name].lacks()
	case netvirt.InterfaceACL:
		return v.ports[o.Interface].lacks()
	case netvirt.ELANInterface:
		p := v.ports[o.Name]
		return cmp.Or(p.lacks(), p.lacksELAN(o.ELAN))
	case netvirt.MACEntry:
		p := v.ports[o.Interface]
		return cmp.Or(p.lacks(), unless(p.elan != "", "flows not programmed: elan-state does not have its interface"))
	case netvirt.VPNInterface:
		p := v.ports[o.Name]
		return cmp.Or(p.lacks(), v.lacksMembership(p, o.VPN))
	case netvirt.Adjacency:
		p := v.ports[o.Interface]
		return cmp.Or(p.lacks(), unless(strings.Contains(p.addresses, addressOf(o.Address, o.MAC)), noAddress))
	case netvirt.FloatingIP:
		return "OpenDaylight stores floating-ip-info and reports no status for it: its natservice programs it, which some releases lack"
	}
	return ""
}

// noAddress is what an address lacks that its vpn-interface does not have.
const noAddress = "flows not programmed: vpn-interface-op-data does not have its address"

func (v *view) lacksELAN(name string) string {
	return unless(v.elans[name], "OpenDaylight has not programmed it: it is not in elan-state")
}

func (p port) lacksELAN(elan string) string {
	return unless(p.elan == elan, "flows not programmed: elan-state does not have it in its elan-instance")
}

func (v *view) lacksVPN(name string) string {
	_, found := v.vpns[name]
	return unless(found, "OpenDaylight has not programmed it: it is not in vpn-instance-op-data; check that no other vpn-instance has its route distinguisher")
}

// lacksMembership returns what a port lacks to be a member of a namespace's vpn-instance or
// of the Transit's.
func (v *view) lacksMembership(p port, vpn string) string {
	_, found := v.vpns[vpn]
	switch {
	case p.vpn == vpn, strings.HasPrefix(p.vpn, codec.TransitPrefix):
		return ""
	case !found:
		return "flows not programmed: its vpn-instance is not in vpn-instance-op-data; check that no other one has its route distinguisher"
	}
	return "flows not programmed: vpn-instance-op-data does not have it in its vpn-instance"
}

func (p port) lacks() string {
	switch p.status {
	case "up":
		return unless(p.groups.wrong == 0, fmt.Sprintf("flows not programmed: group %d does not lead to its port", p.groups.wrong))
	case "":
		return "not plugged in yet: OpenDaylight knows of no such port on a switch that it manages"
	}
	return "its port is " + p.status + " (oper-status)"
}

func unless(holds bool, text string) string {
	if holds {
		return ""
	}
	return text
}

func newView() *view {
	return &view{elans: map[string]bool{}, vpns: map[string]uint64{}, ports: map[string]port{}}
}

// readView reads the elan-instances and vpn-instances and their members.
func readView(ctx context.Context, s *controller.Session) (*view, error) {
	v := newView()
	elans, err := controller.ReadState(ctx, s, elanStates, func(e elanState) {
		v.elans[e.Name] = true
		for _, name := range e.Interfaces {
			v.change(name, func(p *port) { p.elan = e.Name })
		}
	})
	if err != nil {
		return nil, err
	}
	vpns, err := controller.ReadState(ctx, s, vpnStates, func(e vpnState) {
		v.vpns[e.Name] = e.ID
		for _, one := range e.Switches {
			for _, i := range one.Interfaces {
				v.change(i.Name, func(p *port) { p.vpn = e.Name })
			}
		}
	})
	if err == nil && (!elans || !vpns) {
		// A controller that starts or stops also answers that data does not exist.
		err = s.Ready(ctx)
	}
	return v, err
}

func (v *view) change(name string, change func(*port)) {
	if _, _, _, err := netvirt.ParseInterfaceName(name); err != nil {
		return // a port or a tunnel
	}
	p := v.ports[name]
	change(&p)
	v.ports[name] = p
}

// unsure returns the interfaces whose other state must be read: those with a new membership,
// members that were not complete or have a wrong group, and the awaited ones if they are few. The node's port in an
// elan-instance is complete without addresses if it is in no vpn-instance.
func (v *view) unsure(before *view, awaited []string) []string {
	all := map[string]bool{}
	for name, p := range v.ports {
		was := before.ports[name]
		if was.elan != p.elan || was.vpn != p.vpn || was.status != "up" || was.addresses == "" && p.vpn != "" || was.groups.wrong != 0 {
			all[name] = true
		}
	}
	for name, was := range before.ports {
		if now := v.ports[name]; was.elan != now.elan || was.vpn != now.vpn {
			all[name] = true
		}
	}
	if len(awaited) <= controller.FewEntries {
		for _, name := range awaited {
			all[name] = true
		}
	}
	return slices.Collect(maps.Keys(all))
}

// keep copies the state that is not read each time from the view before.
func (v *view) keep(before *view) {
	for name, was := range before.ports {
		p, found := v.ports[name]
		p.link = was.link
		if p.vpn == was.vpn {
			p.addresses = was.addresses
		}
		if found || p.status != "" {
			v.ports[name] = p
		}
	}
}

// readPorts reads the state that readView does not read, for all interfaces.
func (v *view) readPorts(ctx context.Context, s *controller.Session) error {
	_, err := controller.ReadState(ctx, s, interfaceStates, func(e interfaceState) {
		v.change(e.Name, func(p *port) { p.link = e.link() })
	})
	if err != nil {
		return err
	}
	_, err = controller.ReadState(ctx, s, vpnMemberStates, v.addMember)
	return err
}

func (v *view) addMember(e vpnMemberState) {
	if p, found := v.ports[e.Name]; found && p.vpn == e.VPN && !e.Going {
		p.addresses = e.addresses()
		v.ports[e.Name] = p
	}
}

// readSome reads the state that readView does not read, for some interfaces.
func (v *view) readSome(ctx context.Context, s *controller.Session, names []string) error {
	var mu sync.Mutex
	return controller.Together(ctx, s.Parallel(), len(names), func(ctx context.Context, i int) error {
		name := names[i]
		var state interfaceState
		if _, err := controller.ReadState(ctx, s, interfaceStates, func(e interfaceState) { state = e }, name); err != nil {
			return err
		}
		mu.Lock()
		vpn := v.ports[name].vpn
		mu.Unlock()
		var member vpnMemberState
		if vpn != "" {
			if _, err := controller.ReadState(ctx, s, vpnMemberStates, func(e vpnMemberState) { member = e }, name, vpn); err != nil {
				return err
			}
		}
		mu.Lock()
		defer mu.Unlock()
		v.set(name, state.link(), member)
		return nil
	})
}

// set sets the state of an interface.
func (v *view) set(name string, l link, member vpnMemberState) {
	p := v.ports[name]
	p.link, p.addresses = l, ""
	if v.ports[name] = p; p == (port{}) {
		delete(v.ports, name)
		return
	}
	if member.Name != "" {
		v.addMember(member)
	}
}
