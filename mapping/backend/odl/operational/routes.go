package operational

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/codec"
	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/controller"
)

// OpenDaylight writes no flow to a switch while it gives the switch its former flows again, after the switch has connected or another member
// has become its master. Nothing repeats a route to a pod of another node that should have been written then. Netvirt can also fail to compute such
// a route, and does not try again. So KeepRoutes asks for the routes to other nodes again, by an RPC of Netvirt (decision 106). It does that
// only with draft-02: over their RFC 8040, Oxygen and Neon fail concurrent writes.

// routesTimes is how many times the routes of a connection are asked for.
const routesTimes = 2

// routesPerSecond limits the load: Netvirt writes the routes of new pods in a vpn-instance only between such calls.
const routesPerSecond = 100

// inventory is the list of the switches that are connected. inventoryPath asks for the leaves of node. Draft-02 cannot select leaves.
var inventory = controller.StateList{Module: "opendaylight-inventory", Container: "nodes", Name: "node"}

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

// keeper is what KeepRoutes knows.
type keeper struct {
	*Network
	connections map[string]*connection // by switch
	reached     map[string]*reached    // by interface
	losses      map[loss]string        // that were not asked for yet, with an address that lacks a route
	nextLook    time.Time
}

// KeepRoutes asks for the routes of switches again that lack one, or whose connections are new, until ctx ends: one switch after the other, those that lack
// a route first, then the newest connection. A Network that was just created knows no connection and no interface, so all are new to it.
func (n *Network) KeepRoutes(ctx context.Context) {
	k := &keeper{Network: n, connections: map[string]*connection{}, reached: map[string]*reached{}, losses: map[loss]string{}}
	next := time.NewTimer(n.cfg.Poll)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		}
		count := k.keepRoutes(ctx)
		next.Reset(cmp.Or(time.Duration(count)*time.Second/routesPerSecond, n.cfg.Poll))
	}
}

// keepRoutes asks for the routes of one switch, if it is time for one. It returns how many it has asked for.
func (k *keeper) keepRoutes(ctx context.Context) (count int) {
	s := k.current.Load()
	if s == nil || s.Dialect.Name != controller.Draft02 {
		return 0
	}
	err := k.readConnections(ctx, s)
	if err == nil {
		err = k.look(ctx, s)
	}
	if err != nil {
		k.log.Debug("read the connections of switches, and routes", "err", err)
	}
	of, lost := k.due()
	if of.node == "" {
		return 0
	}
	count, err = askForRoutes(ctx, s, of)
	log := k.log.With("switch", of.node)
	if lost != "" {
		log = log.With("lost", lost)
	}
	switch {
	case ctx.Err() != nil:
		return 0
	case err != nil:
		log.Warn("cannot ask OpenDaylight to write the routes of a switch to other nodes again", "err", err)
		return 0
	case count > 0:
		log.Info("asked OpenDaylight to write the routes of a switch to other nodes again", "routes", count)
	}
	return count
}

// readConnections notes the connections that are new, and forgets those that have ended.
func (k *keeper) readConnections(ctx context.Context, s *controller.Session) error {
	q := s.Request(http.MethodGet, inventoryPath, nil)
	q.Media = controller.JSONOfRFC
	now := map[string]*connection{}
	_, err := controller.ReadStateBy(ctx, s, q, inventory, false, func(n node) {
		now[n.ID] = &connection{port: n.Port, since: time.Now()}
		if c := k.connections[n.ID]; c != nil && c.port == n.Port {
			now[n.ID] = c
		}
	})
	if err == nil {
		k.connections = now
	}
	return err
}

// due returns the switch for whose routes it is time, and notes that they are asked for; empty if there is none. If the switch lacks a route, its address and its
// vpn-instance are the reason.
func (k *keeper) due() (of loss, lost string) {
	for of, lost := range k.losses {
		delete(k.losses, of)
		return of, lost
	}
	var due *connection
	for id, c := range k.connections {
		asks := c.asked < routesTimes && time.Since(c.since) >= time.Duration(1+2*c.asked)*k.cfg.RoutesDelay
		if asks && (due == nil || c.since.After(due.since)) {
			of.node, due = id, c
		}
	}
	if due != nil {
		due.asked++
	}
	return of, ""
}

// routes has the routes of a switch in a vpn-instance.
type routes struct {
	number jsontext.Value // of the switch
	vpn    vpnState
	count  int // of the interfaces on other switches
}

// askForRoutes asks for the routes of a switch in a vpn-instance of ours, or in all if it has no name. It returns how many they are.
func askForRoutes(ctx context.Context, s *controller.Session, of loss) (count int, err error) {
	var all []routes
	var names []string
	if _, err := controller.ReadState(ctx, s, vpnStates, func(e vpnState) {
		if r, found := e.routesOf(of.node); found && r.count > 0 && (of.vpn == "" || of.vpn == e.Name) {
			all, names = append(all, r), append(names, e.Name)
		}
	}); err != nil {
		return 0, err
	}
	ours, err := s.Look(ctx, &s.Lists[codec.VPNInstances], names)
	if err != nil {
		return 0, err
	}
	var failures []error
	for _, r := range all {
		if e := ours[r.vpn.Name]; e != nil && codec.MayTake(e) {
			count += r.count
			failures = append(failures, r.askFor(ctx, s))
		}
	}
	return count, errors.Join(failures...)
}

// routesOf returns the routes of a switch; found is false if the vpn-instance has no interface there.
func (e vpnState) routesOf(id string) (r routes, found bool) {
	r.vpn = e
	for _, one := range e.active() {
		if one.id() == id {
			r.number, found = one.Number, true
		} else {
			r.count += len(one.Interfaces)
		}
	}
	return r, found
}

// askFor asks for the routes again.
func (r *routes) askFor(ctx context.Context, s *controller.Session) error {
	type input struct {
		Switch jsontext.Value `json:"dpid"`
		VPN    uint64         `json:"vpn-id"`
		RD     string         `json:"rd"`
	}
	q, err := s.Operation(s.URL, "fib-rpc:populate-fib-on-dpn", input{r.number, r.vpn.ID, r.vpn.RD})
	if err != nil {
		return err
	}
	return s.Send(ctx, q, nil)
}
