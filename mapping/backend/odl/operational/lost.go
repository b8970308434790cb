package operational

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/controller"
)

// Netvirt computes the routes of each switch once, as flows of table 21 in the config datastore. If that fails, it logs the failure and goes on.
// Their names have the route distinguisher and the address, so the names show which routes there are.

// lost is what the looks at a switch have found.
type lost struct {
	route string // one that it lacks
	looks int    // how many in a row have found that it lacks one
	asked int    // at which of them its routes were asked for last
}

// due reports whether the routes must be asked for. One look alone can have seen an interface before its routes. If asking does not help, twice as
// many looks follow until the next time.
func (l *lost) due() bool { return l.looks >= max(2, 2*l.asked) }

// place is what an interface has in a vpn-instance.
type place struct{ node, vpn, addresses string }

// lookShare limits the looks for lost routes to one part in lookShare of the time. wholeLook is the interval of the looks at all routes.
const lookShare, wholeLook = 20, 5 * time.Minute

// look finds the switches that lack a route to an interface of another switch. Between two looks at all routes it looks only at
// vpn-instances with an interface to which some switch had no route in the last look, or that is new in its place.
func (k *keeper) look(ctx context.Context, s *controller.Session) error {
	begun := time.Now()
	if begun.Before(k.next) {
		return nil
	}
	if begun.Sub(k.whole) >= wholeLook {
		k.right, k.whole = nil, begun
	}
	var vpns []vpnState
	if _, err := controller.ReadState(ctx, s, vpnStates, func(e vpnState) { vpns = append(vpns, e) }); err != nil {
		return err
	}
	right, missing := map[string]place{}, map[string]string{}
	for _, e := range vpns {
		places := k.places(e)
		if len(e.Switches) < 2 || k.allRight(places) {
			maps.Copy(right, places)
			continue
		}
		flows, err := e.flows(ctx, s)
		if err != nil {
			return err
		}
		for name, p := range places {
			if e.look(p, flows, missing) {
				right[name] = p
			}
		}
	}
	for id, c := range k.connections {
		if c.lost.route = missing[id]; c.lost.route == "" {
			c.lost = lost{}
		} else {
			c.lost.looks++
		}
	}
	k.right, k.next = right, begun.Add(lookShare*time.Since(begun))
	return nil
}

// places returns the places of the interfaces of a vpn-instance.
func (k *keeper) places(e vpnState) map[string]place {
	k.mu.RLock()
	defer k.mu.RUnlock()
	all := map[string]place{}
	if k.seen == nil {
		return all
	}
	for _, one := range e.Switches {
		for _, i := range one.Interfaces {
			if p := k.seen.ports[i.Name]; p.vpn == e.Name && p.addresses != "" {
				all[i.Name] = place{one.id(), e.Name, p.addresses}
			}
		}
	}
	return all
}

// allRight reports whether the last look has found routes to all places.
func (k *keeper) allRight(places map[string]place) bool {
	for name, p := range places {
		if k.right[name] != p {
			return false
		}
	}
	return true
}

// flows returns the names of the routes of a vpn-instance's switches, by switch.
func (e *vpnState) flows(ctx context.Context, s *controller.Session) (map[string]map[string]bool, error) {
	type table struct {
		Flows []struct {
			ID string `json:"id"`
		} `json:"flow"`
	}
	l := controller.StateList{Module: "flow-node-inventory", Container: "table", Name: "table"}
	all := map[string]map[string]bool{}
	for _, one := range e.Switches {
		names := map[string]bool{}
		q := s.Request(http.MethodGet, fmt.Sprintf("/restconf/config/opendaylight-inventory:nodes/node/%s/flow-node-inventory:table/%d?depth=2", controller.Escape(one.id()), routeTable), nil)
		_, err := controller.ReadStateBy(ctx, s, q, l, true, func(t table) {
			for _, f := range t.Flows {
				names[f.ID] = true
			}
		})
		if err != nil {
			return nil, err
		}
		all[one.id()] = names
	}
	return all, nil
}

// look reports whether routes lead to a place from all switches, and notes which switches lack one. While the place's own switch lacks the route,
// Netvirt is not yet there. It does not look for IPv6 addresses.
func (e *vpnState) look(p place, flows map[string]map[string]bool, missing map[string]string) (right bool) {
	right = true
	for line := range strings.Lines(p.addresses) {
		text, _, _ := strings.Cut(line, " ")
		if a, err := netip.ParseAddr(text); err != nil || !a.Is4() {
			continue
		}
		if !flows[p.node][e.flow(p.node, text)] {
			return false
		}
		for id, names := range flows {
			if !names[e.flow(id, text)] {
				missing[id], right = text, false
			}
		}
	}
	return right
}

// routeTable is Netvirt's table of routes, and hostPriority the priority of a route to one IPv4 address.
const routeTable, hostPriority = 21, 42

// flow returns the name of the route to an address on a switch.
func (e *vpnState) flow(id, address string) string {
	return fmt.Sprintf("L3.%s.%d.%s.%d.%s", strings.TrimPrefix(id, openflow), routeTable, e.RD, hostPriority, address)
}
