package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/coe-bridge/coe-bridge/test/lab/nbrows"
)

// bareRows are what a client writes for pods without a bridge: the same rows of their switch ports, in the same switches and
// port groups.
type bareRows struct {
	endpoint string
	ports    []barePort // in the order of the pods
}

// barePort is the row of a port, and the rows of which it is a member.
type barePort struct {
	id  string
	row map[string]any
	of  []member
}

// member is a row that lists ports.
type member struct{ table, id string }

// further returns the rows of some further pods, which the bridge has written.
func (c *cluster) further(ctx context.Context, n int) (*bareRows, error) {
	all, err := nbrows.Read(ctx, c.lab.NB.Remote, "Logical_Switch_Port")
	if err != nil {
		return nil, err
	}
	byName := map[string]map[string]any{}
	for _, row := range all {
		byName[row["name"].(string)] = row
	}
	of := map[string][]member{}
	for _, table := range []string{"Logical_Switch", "Port_Group"} {
		rows, err := nbrows.Read(ctx, c.lab.NB.Remote, table)
		if err != nil {
			return nil, err
		}
		for _, row := range rows {
			for _, port := range references(row["ports"]) {
				of[port] = append(of[port], member{table, nbrows.ID(row)})
			}
		}
	}
	b := &bareRows{endpoint: c.lab.NB.Remote}
	for i := range n {
		row := byName[c.portOf(c.load.Count+i)]
		if row == nil {
			return nil, fmt.Errorf("the bridge has not written port %s", c.portOf(c.load.Count+i))
		}
		id := nbrows.ID(row)
		delete(row, "up") // northd's
		b.ports = append(b.ports, barePort{id, row, of[id]})
	}
	return b, nil
}

// references returns the UUIDs of a column: one, or a set of them (RFC 7047, section 5.1).
func references(column any) (ids []string) {
	pair, ok := column.([]any)
	if !ok || len(pair) != 2 {
		return nil
	}
	if pair[0] == "uuid" {
		return []string{pair[1].(string)}
	}
	for _, one := range pair[1].([]any) {
		ids = append(ids, references(one)...)
	}
	return ids
}

// insert writes the rows of one pod in one transaction.
func (b *bareRows) insert(ctx context.Context, i int) error {
	p := b.ports[i]
	row := map[string]any{}
	for column, value := range p.row {
		row[column] = value
	}
	return b.transact(ctx, append([]any{nbrows.Insert("Logical_Switch_Port", row)}, p.mutations("insert")...))
}

// delete deletes the rows of all pods in one transaction. A port that is in no switch is deleted by the database.
func (b *bareRows) delete(ctx context.Context) error {
	var ops []any
	for _, p := range b.ports {
		ops = append(ops, p.mutations("delete")...)
	}
	return b.transact(ctx, ops)
}

func (b *bareRows) transact(ctx context.Context, ops []any) error {
	_, err := nbrows.Transact(ctx, b.endpoint, ops...)
	return err
}

func (p barePort) mutations(how string) (ops []any) {
	for _, m := range p.of {
		ops = append(ops, map[string]any{
			"op": "mutate", "table": m.table, "where": []any{[]any{"_uuid", "==", []any{"uuid", m.id}}},
			"mutations": []any{[]any{"ports", how, []any{"uuid", p.id}}},
		})
	}
	return ops
}

// deleteFurther deletes the further pods, and waits until OVN has no trace of them.
func (c *cluster) deleteFurther(ctx context.Context) error {
	if err := c.pods.Resize(c.load.Count); err != nil {
		return err
	}
	return errors.Join(c.await(ctx, 0), c.sync(ctx))
}
