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
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// OpenDaylight writes no flow to a switch while it gives the switch its former flows again, after the switch has connected or another member
// has become its master. Nothing repeats a route to a pod of another node that should have been written then. So the backend asks
// for the routes to other nodes again, by an RPC of Netvirt (decision 106).

// routesTimes is how many times the routes of a connection are asked for.
const routesTimes = 2

// routesPerSecond limits the load: Netvirt writes each route to its datastore and to the switch.
const routesPerSecond = 100

// inventory is the list of the switches that are connected.
var inventory = stateList{"opendaylight-inventory", "nodes", "node"}

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

// keepRoutes asks for the routes of switches again whose connections are new, until ctx ends. A bridge that starts knows no connection, so all
// are new to it.
func (b *Backend) keepRoutes(ctx context.Context) {
	known := map[string]*connection{}
	interval := b.cfg.Poll
	for pause(ctx, interval); ctx.Err() == nil; pause(ctx, interval) {
		s := b.observed.Load()
		if s == nil {
			continue
		}
		begun := time.Now()
		err := s.connections(ctx, known)
		interval = max(b.cfg.Poll, pollShare*time.Since(begun))
		if err == nil {
			err = b.askForRoutes(ctx, s, known)
		}
		if err != nil && ctx.Err() == nil {
			b.log.Debug("ask OpenDaylight for routes", "err", err)
		}
	}
}

// connections adds the connections that are new to known.
func (s *session) connections(ctx context.Context, known map[string]*connection) error {
	q := s.stateRequest(inventory)
	if s.dialect.Equal {
		q.URL += "&fields=node(id;flow-node-inventory:port-number)"
	} else {
		q.URL += "?depth=3" // with the keys of flows, groups and ports: draft-02 has no fields
	}
	_, err := readStateBy(ctx, s, q, inventory, func(n node) {
		if c := known[n.ID]; c == nil || c.port != n.Port {
			known[n.ID] = &connection{port: n.Port, since: time.Now()}
		}
	})
	return err
}

// askForRoutes asks for the routes of the switches for which it is time, one vpn-instance of ours after the other.
func (b *Backend) askForRoutes(ctx context.Context, s *session, known map[string]*connection) error {
	due := map[string]*connection{}
	for id, c := range known {
		if after := time.Duration(1+2*c.asked) * b.cfg.Routes; c.asked < routesTimes && time.Since(c.since) >= after {
			due[id] = c
		}
	}
	if len(due) == 0 {
		return nil
	}
	asked := map[string][]routes{}
	if _, err := readState(ctx, s, vpnStates, func(e vpnState) {
		for i := range e.Switches {
			r := e.routes(i)
			asked[r.node] = append(asked[r.node], r)
		}
	}); err != nil {
		return err
	}
	for id, c := range due {
		for _, r := range asked[id] {
			ours, err := b.isOurs(ctx, r.vpn.Name)
			if err == nil && ours && r.count > 0 {
				err = s.askFor(ctx, r)
				pause(ctx, time.Duration(r.count)*time.Second/routesPerSecond)
			}
			if controller.IsRefusal(err) {
				b.log.Warn("OpenDaylight refuses to write the routes of a switch to other nodes again", "switch", id, "vpn-instance", r.vpn.Name, "err", err)
			} else if err != nil {
				return err
			}
		}
		c.asked++
		b.log.Info("asked OpenDaylight to write the routes of a switch to other nodes again", "switch", id)
	}
	return nil
}

// routes has the routes of a switch in a vpn-instance.
type routes struct {
	node   string // openflow:SWITCH
	number jsontext.Value
	vpn    vpnState
	count  int // of the interfaces on other switches
}

// routes returns the routes of the vpn-instance's switch i.
func (e vpnState) routes(i int) routes {
	r := routes{node: "openflow:" + strings.Trim(string(e.Switches[i].ID), `"`), number: e.Switches[i].ID, vpn: e}
	for other := range e.Switches {
		if other != i {
			r.count += len(e.Switches[other].Interfaces)
		}
	}
	return r
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
		return fmt.Errorf("ask for routes of %s: %w", r.node, err)
	}
	return s.Send(ctx, s.request(http.MethodPost, s.dialect.Operations+"/fib-rpc:populate-fib-on-dpn", body), nil)
}

// isOurs reports whether a vpn-instance is ours. It is an error if our entries are not known.
func (b *Backend) isOurs(ctx context.Context, vpn string) (bool, error) {
	if err := b.acquire(ctx); err != nil {
		return false, err
	}
	defer b.release()
	if b.mirror == nil {
		return false, errors.New("our entries in OpenDaylight are not known")
	}
	unit := codec.UnitOf(netvirt.VPNInstance{Name: vpn})
	if target, is := strings.CutPrefix(vpn, codec.TransitPrefix); is {
		unit = codec.UnitOf(netvirt.Transit{RouteTarget: target})
	}
	return b.mirror.At(unit) != codec.Content{}, nil
}
