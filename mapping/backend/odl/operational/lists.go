package operational

import (
	"context"
	"net/netip"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/controller"
)

// The lists with the operational state of our entries. Netvirt adds an interface to the first
// when its port is plugged in, and then to the others.
var (
	interfaceStates = controller.StateList{Module: "ietf-interfaces", Container: "interfaces-state", Name: "interface"}
	elanStates      = controller.StateList{Module: "elan", Container: "elan-state", Name: "elan"}
	vpnStates       = controller.StateList{Module: "odl-l3vpn", Container: "vpn-instance-op-data", Name: "vpn-instance-op-data-entry"}
	vpnMemberStates = controller.StateList{Module: "odl-l3vpn", Container: "vpn-interface-op-data", Name: "vpn-interface-op-data-entry"}
)

// listMembers is the list with the interfaces that have an access list and are plugged in.
var listMembers = controller.StateList{Module: "aclservice", Container: "acl-ports-lookup", Name: "acl-ports-by-ip"}

type interfaceState struct {
	Name   string   `json:"name"`
	Status string   `json:"oper-status"`
	Tag    uint64   `json:"if-index"`
	MAC    string   `json:"phys-address"` // of its port on the switch
	Below  []string `json:"lower-layer-if"`
}

// link returns what an interface's port has of the state.
func (e *interfaceState) link() link {
	l := link{status: e.Status, tag: e.Tag, mac: e.MAC}
	if len(e.Below) > 0 {
		if i := strings.LastIndexByte(e.Below[0], ':'); i > 0 { // openflow:SWITCH:PORT
			l.node = e.Below[0][:i]
		}
	}
	return l
}

type elanState struct {
	Name       string   `json:"name"`
	Interfaces []string `json:"elan-interfaces"`
}

type vpnState struct {
	Name     string      `json:"vpn-instance-name"`
	ID       uint64      `json:"vpn-id"`
	RD       string      `json:"vrf-id"`
	Switches []vpnSwitch `json:"vpn-to-dpn-list"`
}

// vpnSwitch is a switch with interfaces of a vpn-instance.
type vpnSwitch struct {
	Number     jsontext.Value `json:"dpnId"` // a number, or text with one
	State      string         `json:"dpn-state"`
	Interfaces []struct {
		Name string `json:"interface-name"`
	} `json:"vpn-interfaces"`
}

// openflow begins the ID of a switch in opendaylight-inventory.
const openflow = "openflow:"

func (s *vpnSwitch) id() string { return openflow + strings.Trim(string(s.Number), `"`) }

// active returns the switches for which Netvirt computes routes. A switch stays in the list, inactive and without interfaces, when its last interface has gone.
func (e *vpnState) active() []vpnSwitch {
	return slices.DeleteFunc(slices.Clone(e.Switches), func(s vpnSwitch) bool { return s.State == "inactive" })
}

type vpnMemberState struct {
	Name        string `json:"name"`
	VPN         string `json:"vpn-instance-name"`
	Going       bool   `json:"scheduled-for-remove"`
	Adjacencies []struct {
		Address string `json:"ip_address"`
		MAC     string `json:"mac_address"`
	} `json:"adjacency"`
}

type listMemberState struct {
	Name     string `json:"acl-name"`
	Prefixes []struct {
		Ports []struct {
			ID string `json:"port-id"`
		} `json:"port-ids"`
	} `json:"acl-ip-prefixes"`
}

// ELANMembers returns the members in operation of elan-instances, by elan-instance.
func ELANMembers(ctx context.Context, s *controller.Session, elans []string) (map[string][]string, error) {
	members := map[string][]string{}
	add := func(e elanState) { members[e.Name] = e.Interfaces }
	if len(elans) > controller.FewEntries {
		_, err := controller.ReadState(ctx, s, elanStates, add)
		return members, unlessRefused(err)
	}
	for _, elan := range elans {
		if _, err := controller.ReadState(ctx, s, elanStates, add, elan); unlessRefused(err) != nil {
			return nil, err
		}
	}
	return members, nil
}

// Membership is that of an interface in a vpn-instance.
type Membership struct{ Interface, VPN string }

// VPNMembers returns the interfaces that have one of the memberships in operation.
func VPNMembers(ctx context.Context, s *controller.Session, of map[Membership]bool) (map[string]bool, error) {
	in := map[string]bool{}
	add := func(e vpnMemberState) { in[e.Name] = in[e.Name] || of[Membership{e.Name, e.VPN}] }
	if len(of) > controller.FewEntries {
		_, err := controller.ReadState(ctx, s, vpnMemberStates, add)
		return in, unlessRefused(err)
	}
	for one := range of {
		if _, err := controller.ReadState(ctx, s, vpnMemberStates, add, one.Interface, one.VPN); unlessRefused(err) != nil {
			return nil, err
		}
	}
	return in, nil
}

// UsedLists returns the access lists that an interface has in operation.
func UsedLists(ctx context.Context, s *controller.Session) (map[string]bool, error) {
	used := map[string]bool{}
	_, err := controller.ReadState(ctx, s, listMembers, func(e listMemberState) {
		for _, p := range e.Prefixes {
			used[e.Name] = used[e.Name] || len(p.Ports) > 0
		}
	})
	return used, unlessRefused(err)
}

// unlessRefused returns nil for an answer that refuses the request: with some releases' RFC
// 8040, such an answer means that the data does not exist. It returns other errors.
func unlessRefused(err error) error {
	if controller.IsRefusal(err) {
		return nil
	}
	return err
}

// addresses returns the interface's addresses, each in the form of addressOf.
func (e *vpnMemberState) addresses() string {
	var all []string
	for _, a := range e.Adjacencies {
		if prefix, err := netip.ParsePrefix(a.Address); err == nil {
			all = append(all, addressOf(prefix.Addr(), a.MAC))
		}
	}
	slices.Sort(all)
	return strings.Join(all, "")
}

// addressOf returns an address and its MAC address as text that is never part of another
// such text.
func addressOf(a netip.Addr, mac string) string {
	return a.String() + " " + strings.ToLower(mac) + "\n"
}
