package odl

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/codec"
	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/controller"
)

// OpenDaylight writes no flow to a switch while it gives the switch its former flows again, after the switch has connected or another member
// has become its master. Nothing repeats a route to a pod of another node that should have been written then. So the backend asks
// for the routes to other nodes again, by an RPC of Netvirt (decision 106). It does that only with draft-02: over their RFC 8040, Oxygen and
// Neon fail concurrent writes.

// routesTimes is how many times the routes of a connection are asked for.
const routesTimes = 2

// routesPerSecond limits the load: Netvirt writes the routes of new pods in a vpn-instance only between such calls.
const routesPerSecond = 100

// inventory is the list of the switches that are connected. inventoryPath asks for the leaves of node. Draft-02 cannot select leaves.
var inventory = stateList{"opendaylight-inventory", "nodes", "node"}

const inventoryPath = "/rests/data/opendaylight-inventory:nodes?content=nonconfig&fields=node(id;flow-node-inventory:port-number)"

type node struct {
	ID   string `json:"id"`                              // openflow:SWITCH
	Port uint64 `json:"flow-node-inventory:port-number"` // of the switch's end of the connection to its master
}

// connection is the connection of a switch to its master.
type connection struct {
	port  uint64
	since time.Time // when it was seen first
	asked int       // how many times its routes were asked for
}

// keepRoutes asks for the routes of switches again whose connections are new, until ctx ends: one switch after the other, the newest connection first.
// A backend that starts knows no connection, so all are new to it.
func (b *Backend) keepRoutes(ctx context.Context) {
	known := map[string]*connection{}
	wait := b.cfg.Poll
	for pause(ctx, wait); ctx.Err() == nil; pause(ctx, wait) {
		wait = b.cfg.Poll
		s := b.observed.Load()
		if s == nil || s.dialect.Name != controller.Draft02 {
			continue
		}
		if err := s.connections(ctx, known); err != nil {
			b.log.Debug("read the connections of switches", "err", err)
			continue
		}
		id := b.due(known)
		if id == "" {
			continue
		}
		known[id].asked++
		count, err := s.askForRoutes(ctx, id)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			b.log.Warn("cannot ask OpenDaylight to write the routes of a switch to other nodes again", "switch", id, "err", err)
			continue
		}
		if count == 0 {
			continue
		}
		b.log.Info("asked OpenDaylight to write the routes of a switch to other nodes again", "switch", id, "routes", count)
		wait = time.Duration(count) * time.Second / routesPerSecond
	}
}

// connections adds the connections that are new to known.
func (s *session) connections(ctx context.Context, known map[string]*connection) error {
	q := controller.Request{Method: http.MethodGet, URL: s.base + inventoryPath, Media: controller.JSONOfRFC, Timeout: s.cfg.Timeout}
	_, err := readStateBy(ctx, s, q, inventory, func(n node) {
		if c := known[n.ID]; c == nil || c.port != n.Port {
			known[n.ID] = &connection{port: n.Port, since: time.Now()}
		}
	})
	return err
}

// due returns the switch for whose routes it is time; empty if there is none.
func (b *Backend) due(known map[string]*connection) (id string) {
	for other, c := range known {
		if c.asked < routesTimes && time.Since(c.since) >= time.Duration(1+2*c.asked)*b.cfg.RoutesDelay && (id == "" || c.since.After(known[id].since)) {
			id = other
		}
	}
	return id
}

// routes has the routes of a switch in a vpn-instance.
type routes struct {
	number jsontext.Value // of the switch
	vpn    vpnState
	count  int // of the interfaces on other switches
}

// askForRoutes asks for the routes of a switch in all vpn-instances of ours. It returns how many they are.
func (s *session) askForRoutes(ctx context.Context, id string) (count int, err error) {
	var all []routes
	var names []string
	if _, err := readState(ctx, s, vpnStates, func(e vpnState) {
		if r, found := e.routesOf(id); found && r.count > 0 {
			all, names = append(all, r), append(names, e.Name)
		}
	}); err != nil {
		return 0, err
	}
	ours, err := s.look(ctx, &s.lists[codec.VPNInstances], names)
	if err != nil {
		return 0, err
	}
	var failures []error
	for _, r := range all {
		if e := ours[r.vpn.Name]; e != nil && codec.MayTake(e) {
			count += r.count
			failures = append(failures, s.askFor(ctx, r))
		}
	}
	return count, errors.Join(failures...)
}

// routesOf returns the routes of a switch; found is false if the vpn-instance has no interface there.
func (e vpnState) routesOf(id string) (r routes, found bool) {
	r.vpn = e
	for _, one := range e.Switches {
		if "openflow:"+strings.Trim(string(one.ID), `"`) == id {
			r.number, found = one.ID, true
		} else {
			r.count += len(one.Interfaces)
		}
	}
	return r, found
}

// askFor asks for routes again.
func (s *session) askFor(ctx context.Context, r routes) error {
	type input struct {
		Switch jsontext.Value `json:"dpid"`
		VPN    uint64         `json:"vpn-id"`
		RD     string         `json:"rd"`
	}
	body, err := json.Marshal(map[string]input{"fib-rpc:input": {r.number, r.vpn.ID, r.vpn.RD}})
	if err != nil {
		return fmt.Errorf("ask for the routes of %s: %w", r.vpn.Name, err)
	}
	return s.Send(ctx, s.request(http.MethodPost, "/restconf/operations/fib-rpc:populate-fib-on-dpn", body), nil)
}
