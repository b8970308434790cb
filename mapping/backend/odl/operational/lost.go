package operational

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/controller"
)

// Netvirt computes the route from a switch to an interface of another one once, as a flow of table 21 in the config datastore. If that fails, it
// logs the failure and goes on. So KeepRoutes looks at the flows to each interface that is new in its place.

// place is what an interface has in a vpn-instance.
type place struct {
	node, vpn string
	addresses string // as port has them
	// switches has the active switches of the vpn-instance, if that has few interfaces: a further switch needs routes to all of them. With many
	// interfaces that would take too long. Then a new switch is nearly always a new node, with a new connection.
	switches string
}

// reached is what looks at the routes to an interface have found.
type reached struct {
	place
	all  bool              // all switches of the vpn-instance have had routes to it
	lost map[string]string // what lostRoutes has returned in the last look
	// pause is how many looks leave the interface out after one that did not find all routes, and rest how many of these are to come.
	pause, rest int
}

// pauseMost is the largest pause.
const pauseMost = 20

// routeTable is Netvirt's table of routes, and hostPriority the priority of a route to one IPv4 address.
const routeTable, hostPriority = 21, 42

// loss is a switch that lacks a route in a vpn-instance.
type loss struct{ node, vpn string }

// look looks at the routes to interfaces that are new, looksAtOnce at most, and notes the losses that two looks have found: one look alone can have seen an
// interface before its routes.
func (k *keeper) look(ctx context.Context, s *controller.Session) error {
	begun := time.Now()
	if begun.Before(k.nextLook) {
		return nil
	}
	defer func() { k.nextLook = begun.Add(max(k.cfg.Poll, wholeShare*time.Since(begun))) }()
	vpns := map[string]vpnState{}
	if _, err := controller.ReadState(ctx, s, vpnStates, func(e vpnState) { vpns[e.Name] = e }); err != nil {
		return err
	}
	due := k.toLookAt(vpns)
	lost := make([]map[string]string, len(due))
	failures := make([]error, len(due))
	err := controller.Together(ctx, s.Parallel(), len(due), func(ctx context.Context, i int) error {
		p := k.reached[due[i]].place
		lost[i], failures[i] = k.lostRoutes(ctx, s, vpns[p.vpn], p)
		return ctx.Err()
	})
	for i, name := range due {
		if failures[i] != nil {
			k.log.Debug("look at the routes to an interface", "interface", name, "err", failures[i])
		} else {
			k.note(k.reached[name], lost[i])
		}
	}
	return err
}

// toLookAt returns the interfaces whose routes the next look sees. It forgets those that are gone.
func (k *keeper) toLookAt(vpns map[string]vpnState) (due []string) {
	places := k.places(vpns)
	maps.DeleteFunc(k.reached, func(name string, r *reached) bool { return places[name] != r.place })
	for name, p := range places {
		switch r := k.reached[name]; {
		case r == nil:
			k.reached[name] = &reached{place: p}
			due = append(due, name)
		case r.all:
		case r.rest > 0:
			r.rest--
		default:
			due = append(due, name)
		}
	}
	return due[:min(len(due), looksAtOnce)]
}

// places returns the places of the interfaces with addresses.
func (k *keeper) places(vpns map[string]vpnState) map[string]place {
	k.mu.RLock()
	defer k.mu.RUnlock()
	all := map[string]place{}
	if k.seen == nil {
		return all
	}
	for _, e := range vpns {
		switches := e.switches()
		for _, one := range e.active() {
			for _, i := range one.Interfaces {
				if p := k.seen.ports[i.Name]; p.vpn == e.Name && p.addresses != "" {
					all[i.Name] = place{one.id(), e.Name, p.addresses, switches}
				}
			}
		}
	}
	return all
}

// switches returns the active switches if they have at most looksAtOnce interfaces.
func (e *vpnState) switches() string {
	count := 0
	var ids []string
	for _, one := range e.active() {
		count += len(one.Interfaces)
		ids = append(ids, one.id())
	}
	if count > looksAtOnce {
		return ""
	}
	slices.Sort(ids)
	return strings.Join(ids, " ")
}

// lostRoutes returns an address of a place for each switch of the vpn-instance that has no route to it; nil while the switch of the place has
// none either, because Netvirt is not yet there. It does not look at IPv6 addresses, nor at switches that are not connected.
func (k *keeper) lostRoutes(ctx context.Context, s *controller.Session, e vpnState, p place) (map[string]string, error) {
	lost := map[string]string{}
	for line := range strings.Lines(p.addresses) {
		address, _, _ := strings.Cut(line, " ")
		if a, err := netip.ParseAddr(address); err != nil || !a.Is4() {
			continue
		}
		if has, err := e.hasRoute(ctx, s, p.node, address); err != nil || !has {
			return nil, err
		}
		for _, one := range e.active() {
			if id := one.id(); id != p.node && k.connections[id] != nil {
				has, err := e.hasRoute(ctx, s, id, address)
				if err != nil {
					return nil, err
				}
				if !has {
					lost[id] = address
				}
			}
		}
	}
	return lost, nil
}

// hasRoute reports whether Netvirt has computed the route from a switch to an address.
func (e *vpnState) hasRoute(ctx context.Context, s *controller.Session, id, address string) (bool, error) {
	name := fmt.Sprintf("L3.%s.%d.%s.%d.%s", strings.TrimPrefix(id, openflow), routeTable, e.RD, hostPriority, address)
	path := fmt.Sprintf("/restconf/config/opendaylight-inventory:nodes/node/%s/flow-node-inventory:table/%d/flow/%s?depth=1", controller.Escape(id), routeTable, controller.Escape(name))
	q := s.Request(http.MethodGet, path, nil)
	q.Small = true
	return controller.ReadStateBy(ctx, s, q, controller.StateList{Module: "flow-node-inventory", Container: "flow", Name: "flow"}, true, func(struct{}) {})
}

// note notes what a look at the routes to an interface has found. Without progress more and more looks pass until the next one.
func (k *keeper) note(r *reached, lost map[string]string) {
	again := lost == nil
	for id, address := range lost {
		if r.lost[id] != "" {
			k.losses[loss{id, r.vpn}], again = address, true
		}
	}
	r.all, r.lost = lost != nil && len(lost) == 0, lost
	if again {
		r.rest, r.pause = r.pause, min(2*r.pause+1, pauseMost)
	}
}
