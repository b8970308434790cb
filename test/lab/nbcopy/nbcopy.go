// Package nbcopy copies the rows of an OVN northbound database into another one with a plain libovsdb client,
// as a reference for the backend's speed. It knows the tables that the backend writes, but not the
// meaning of the rows.
package nbcopy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
)

// Batch is the number of switch ports in one transaction.
const Batch = 100

// timeout bounds one transaction.
const timeout = 30 * time.Second

// Copy copies the rows of the database at from into the empty database at to: first everything that ports
// need in one transaction, then the ports, Batch at a time. It returns the number of ports, and the
// duration of the writes.
func Copy(ctx context.Context, from, to string) (ports int, took time.Duration, err error) {
	source, err := Connect(ctx, from)
	if err != nil {
		return 0, 0, err
	}
	defer source.Close()
	if _, err := source.MonitorAll(ctx); err != nil {
		return 0, 0, fmt.Errorf("read northbound database: %w", err)
	}
	rows, err := list(ctx, source)
	if err != nil {
		return 0, 0, err
	}
	target, err := Connect(ctx, to)
	if err != nil {
		return 0, 0, err
	}
	defer target.Close()
	begun := time.Now()
	if err := rows.write(ctx, target); err != nil {
		return 0, 0, err
	}
	return len(rows.ports), time.Since(begun), nil
}

// Connect connects a plain client without monitors.
func Connect(ctx context.Context, endpoint string) (client.Client, error) {
	dbModel, err := nb.FullDatabaseModel()
	if err != nil {
		return nil, err
	}
	c, err := client.NewOVSDBClient(dbModel, client.WithEndpoint(endpoint))
	if err != nil {
		return nil, err
	}
	if err := c.Connect(ctx); err != nil {
		return nil, fmt.Errorf("connect to %s: %w", endpoint, err)
	}
	return c, nil
}

// rows are the rows of a database.
type rows struct {
	// parents are all rows except switch ports: the switches have no ports.
	parents []row
	ports   []nb.LogicalSwitchPort // sorted by name
	// switches has the UUID of each port's switch.
	switches map[string]string
}

type row struct {
	model model.Model
	uuid  string
}

func list(ctx context.Context, c client.Client) (*rows, error) {
	var (
		switches  []nb.LogicalSwitch
		routers   []nb.LogicalRouter
		ports     []nb.LogicalRouterPort
		routes    []nb.LogicalRouterStaticRoute
		policies  []nb.LogicalRouterPolicy
		acls      []nb.ACL
		options   []nb.DHCPOptions
		balancers []nb.LoadBalancer
		groups    []nb.LoadBalancerGroup
		bindings  []nb.StaticMACBinding
		members   []nb.PortGroup
		r         = &rows{switches: map[string]string{}}
	)
	tables := []any{
		&switches, &routers, &ports, &routes, &policies, &acls, &options, &balancers, &groups, &bindings, &members, &r.ports,
	}
	for _, table := range tables {
		if err := c.List(ctx, table); err != nil {
			return nil, fmt.Errorf("list northbound rows: %w", err)
		}
	}
	for i := range switches {
		for _, p := range switches[i].Ports {
			r.switches[p] = switches[i].UUID
		}
		switches[i].Ports = nil
	}
	add(r, balancers, func(b *nb.LoadBalancer) string { return b.UUID })
	add(r, groups, func(g *nb.LoadBalancerGroup) string { return g.UUID })
	add(r, options, func(o *nb.DHCPOptions) string { return o.UUID })
	add(r, ports, func(p *nb.LogicalRouterPort) string { return p.UUID })
	add(r, routes, func(s *nb.LogicalRouterStaticRoute) string { return s.UUID })
	add(r, policies, func(p *nb.LogicalRouterPolicy) string { return p.UUID })
	add(r, acls, func(a *nb.ACL) string { return a.UUID })
	add(r, routers, func(l *nb.LogicalRouter) string { return l.UUID })
	add(r, switches, func(s *nb.LogicalSwitch) string { return s.UUID })
	add(r, bindings, func(b *nb.StaticMACBinding) string { return b.UUID })
	add(r, members, func(g *nb.PortGroup) string { return g.UUID })
	slices.SortFunc(r.ports, func(a, b nb.LogicalSwitchPort) int { return strings.Compare(a.Name, b.Name) })
	return r, nil
}

func add[T any](r *rows, table []T, uuid func(*T) string) {
	for i := range table {
		r.parents = append(r.parents, row{&table[i], uuid(&table[i])})
	}
}

func (r *rows) write(ctx context.Context, c client.Client) error {
	var ops []ovsdb.Operation
	for _, p := range r.parents {
		created, err := create(c, p)
		if err != nil {
			return err
		}
		ops = append(ops, created...)
	}
	if err := commit(ctx, c, ops); err != nil {
		return err
	}
	for ports := range slices.Chunk(r.ports, Batch) {
		if err := r.writePorts(ctx, c, ports); err != nil {
			return err
		}
	}
	return nil
}

// writePorts creates ports and adds them to their switches.
func (r *rows) writePorts(ctx context.Context, c client.Client, ports []nb.LogicalSwitchPort) error {
	var ops []ovsdb.Operation
	members := map[string][]string{}
	for i := range ports {
		created, err := create(c, row{&ports[i], ports[i].UUID})
		if err != nil {
			return err
		}
		ops = append(ops, created...)
		parent := r.switches[ports[i].UUID]
		members[parent] = append(members[parent], ports[i].UUID)
	}
	for uuid, uuids := range members {
		s := &nb.LogicalSwitch{UUID: uuid}
		mutated, err := c.Where(s).Mutate(s, model.Mutation{Field: &s.Ports, Mutator: ovsdb.MutateOperationInsert, Value: uuids})
		if err != nil {
			return fmt.Errorf("add ports to switch: %w", err)
		}
		ops = append(ops, mutated...)
	}
	return commit(ctx, c, ops)
}

// create returns the operation that creates a row with its own UUID.
func create(c client.Client, r row) ([]ovsdb.Operation, error) {
	created, err := c.Create(r.model)
	if err != nil {
		return nil, fmt.Errorf("create row: %w", err)
	}
	created[0].UUID, created[0].UUIDName = r.uuid, ""
	return created, nil
}

func commit(ctx context.Context, c client.Client, ops []ovsdb.Operation) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	results, err := c.Transact(ctx, ops...)
	if err != nil {
		return fmt.Errorf("write northbound rows: %w", err)
	}
	if _, err := ovsdb.CheckOperationResults(results, ops); err != nil {
		return fmt.Errorf("write northbound rows: %w", err)
	}
	return nil
}
