package operational

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/codec"
	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/controller"
)

// Netvirt leads packets for an address to a port by a group on the port's switch, and counts the routes that use the group. In a cluster
// Oxygen counts some routes twice when a member fails. Then the group stays after its pod, and Netvirt takes it as it is for the next pod
// with the address: packets go to a port that is gone. So Observe looks at the group of each new port, and corrects it in the config
// datastore (decision 105). Neon does not count them.

// nextHop is an entry of vpnNexthop in l3nexthop:l3nexthop (operational).
type nextHop struct {
	Group uint64  `json:"egressPointer"`
	Uses  *uint64 `json:"flowrefCount"` // nil in releases that do not count
}

// group is an entry of flow-node-inventory:group (config), as far as it tells where packets go.
type group struct {
	Buckets struct {
		Bucket []struct {
			Actions []struct {
				Set struct {
					Match struct {
						Source      ethernet `json:"ethernet-source"`
						Destination ethernet `json:"ethernet-destination"`
					} `json:"ethernet-match"`
				} `json:"set-field"`
				Load struct {
					Value uint64 `json:"value"`
				} `json:"openflowplugin-extension-nicira-action:nx-reg-load"`
			} `json:"action"`
		} `json:"bucket"`
	} `json:"buckets"`
}

type ethernet struct {
	MAC string `json:"address"`
}

// tagShift is the place of an interface's tag in the register that table 220 matches.
const tagShift = 8

// leads reports whether the group leads packets to the destination. A group that is counted more than once must have the MAC address of the
// port too: then it is written again when the port is another one, and the switch gets it again.
func (g *group) leads(to destination, uses uint64) bool {
	var port, source, target bool
	for _, b := range g.Buckets.Bucket {
		for _, a := range b.Actions {
			port = port || a.Load.Value == to.tag<<tagShift
			source = source || strings.EqualFold(a.Set.Match.Source.MAC, to.link.mac)
			target = target || strings.EqualFold(a.Set.Match.Destination.MAC, to.mac)
		}
	}
	return port && target && (source || uses <= 1)
}

// looksAtOnce is the largest number of ports whose groups one observation looks at. It looks at awaited ones first.
const looksAtOnce = 64

// lookAtGroups looks at the groups of ports, until a look at each port has found them right. It corrects a group that two looks in a row have
// found wrong: the first one can have seen the port and the group at different times. Over RFC 8040 it does nothing: every release that has
// such groups also offers draft-02.
func (n *Network) lookAtGroups(ctx context.Context, s *controller.Session, before, now *view, awaited []string) error {
	if s.Dialect.Name != controller.Draft02 {
		return nil
	}
	var first, names []string
	for name, p := range now.ports {
		was := before.ports[name]
		if p.link == was.link && p.addresses == was.addresses {
			p.groups = was.groups
			now.ports[name] = p
		}
		if p.status != "up" || p.node == "" || p.tag == 0 || p.mac == "" || p.addresses == "" || p.groups.right {
			continue
		}
		if slices.Contains(awaited, name) {
			first = append(first, name)
		} else {
			names = append(names, name)
		}
	}
	names = append(first, names...)
	names = names[:min(len(names), looksAtOnce)]
	var mu sync.Mutex
	return controller.Together(ctx, s.Parallel(), len(names), func(ctx context.Context, i int) error {
		mu.Lock()
		p := now.ports[names[i]]
		vpn := now.vpns[p.vpn]
		mu.Unlock()
		found, err := n.lookAtGroup(ctx, s, names[i], p, vpn)
		if err != nil {
			n.log.Debug("look at a group of OpenDaylight", "interface", names[i], "err", err)
			return ctx.Err()
		}
		mu.Lock()
		defer mu.Unlock()
		p.groups = found
		now.ports[names[i]] = p
		return nil
	})
}

// groups is what the last look at the groups of a port's addresses has found.
type groups struct {
	right bool
	wrong uint64 // the group that led elsewhere; 0 if none was found
}

// destination is an address of an interface.
type destination struct {
	link
	address, mac string
}

// lookAtGroup looks at the groups of a port's addresses, and corrects one that the last look has found wrong too.
func (n *Network) lookAtGroup(ctx context.Context, s *controller.Session, name string, p port, vpn uint64) (groups, error) {
	for line := range strings.Lines(p.addresses) {
		address, mac, _ := strings.Cut(strings.TrimSpace(line), " ")
		to := destination{p.link, address, mac}
		h, err := readNextHop(ctx, s, vpn, to)
		if err != nil {
			return p.groups, err
		}
		if h.Uses == nil {
			continue // Netvirt has given it no group yet, or does not count
		}
		path := fmt.Sprintf("/restconf/config/opendaylight-inventory:nodes/node/%s/flow-node-inventory:group/%d", controller.Escape(to.node), h.Group)
		g, err := readGroup(ctx, s, path)
		if err != nil {
			return p.groups, err
		}
		if g.leads(to, *h.Uses) {
			continue
		}
		if p.groups.wrong == h.Group {
			return n.correct(ctx, s, name, to, h.Group, path)
		}
		return groups{wrong: h.Group}, nil
	}
	return groups{right: true}, nil
}

// correct writes the group of a destination. The next look shows the result. A group of an external interface counts as right.
func (n *Network) correct(ctx context.Context, s *controller.Session, name string, to destination, id uint64, path string) (groups, error) {
	wrong := groups{wrong: id}
	found, err := s.Look(ctx, &s.Lists[codec.Interfaces], []string{name})
	if err != nil {
		return wrong, err
	}
	if found[name] == nil || !codec.CarriesMark(found[name]) {
		return groups{right: true}, nil
	}
	body, err := to.groupBody(id)
	if err != nil {
		return wrong, err
	}
	if err := s.Send(ctx, s.Request(http.MethodPut, path, body), nil); err != nil {
		if controller.IsRefusal(err) {
			n.log.Warn("cannot correct a group of OpenDaylight that does not lead to the port of a pod", "interface", name, "address", to.address, "err", err)
		}
		return wrong, err
	}
	n.log.Info("corrected a group of OpenDaylight that did not lead to the port of a pod", "interface", name, "address", to.address, "switch", to.node, "group", id)
	return wrong, nil
}

// readNextHop reads the next hop of an address; the zero value if there is none.
func readNextHop(ctx context.Context, s *controller.Session, vpn uint64, to destination) (h nextHop, err error) {
	_, err = controller.ReadState(ctx, s, controller.StateList{Module: "l3nexthop", Container: fmt.Sprintf("l3nexthop/vpnNexthops/%d", vpn), Name: "vpnNexthop"}, func(e nextHop) { h = e }, to.prefix())
	return h, err
}

// readGroup reads a group; the zero value if it does not exist.
func readGroup(ctx context.Context, s *controller.Session, path string) (g group, err error) {
	l := controller.StateList{Module: "flow-node-inventory", Container: "group", Name: "group"}
	_, err = controller.ReadStateBy(ctx, s, s.Request(http.MethodGet, path, nil), l, true, func(e group) { g = e })
	return g, err
}

// prefix returns the prefix with the address alone, by which Netvirt knows its next hop.
func (to *destination) prefix() string {
	if strings.Contains(to.address, ":") {
		return to.address + "/128"
	}
	return to.address + "/32"
}

// groupBody returns the group that leads to the destination, as Netvirt writes it.
func (to *destination) groupBody(id uint64) ([]byte, error) {
	type object = map[string]any
	address := func(kind, mac string) object {
		return object{"ethernet-match": object{"ethernet-" + kind: object{"address": mac}}}
	}
	actions := []object{
		{"order": 0, "set-field": address("source", to.link.mac)},
		{"order": 1, "set-field": address("destination", to.mac)},
		{"order": 2, "openflowplugin-extension-nicira-action:nx-reg-load": object{
			"value": to.tag << tagShift, "dst": object{"nx-reg": "nicira-match:nxm-nx-reg6", "start": 0, "end": 31},
		}},
		{"order": 3, "openflowplugin-extension-nicira-action:nx-resubmit": object{"table": 220}},
	}
	const anyPort = 1<<32 - 1 // OFPP_ANY, OFPG_ANY
	return json.Marshal(object{"flow-node-inventory:group": []object{{
		"group-id": id, "group-name": to.prefix(), "group-type": "group-all",
		"buckets": object{"bucket": []object{{"bucket-id": 0, "weight": 0, "watch_port": anyPort, "watch_group": anyPort, "action": actions}}},
	}}})
}
