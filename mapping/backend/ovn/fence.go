package ovn

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
)

// ErrDeposed says that a later writer has claimed the database. It is final for
// this writer's epoch.
var ErrDeposed = errors.New("a later writer has claimed the northbound database")

// ErrForeign says that the database belongs to a bridge with another datastore, until
// an operator says that this one is no more: what this writer's datastore does not
// know it would remove.
var ErrForeign = errors.New("the northbound database belongs to a bridge with another datastore: " +
	"give this one a database of its own; or stop the other for good, and remove coe-bridge/epoch from NB_Global's external_ids")

// fence keeps a writer out whose time is over: each transaction waits, for no
// time, on the writer's epoch in NB_Global. A database that was wiped or put
// back has another NB_Global row, or none, and is fenced off likewise.
type fence struct {
	epoch     string // "" is no fence
	datastore string // whose epoch it is; may be ""
	row       string // UUID of the NB_Global row
}

// guard are the operations that a transaction begins with, in their JSON form.
func (f fence) guard() [][]byte {
	if f.epoch == "" {
		return nil
	}
	mark := map[string]string{idEpoch: f.epoch}
	if f.datastore != "" {
		mark[idDatastore] = f.datastore
	}
	b := []byte(`{"op":"wait","table":"` + nb.NBGlobalTable + `","timeout":0,"until":"==","columns":["_uuid"],"where":[["external_ids","includes",`)
	b = append(appendMap(b, mark), `]],"rows":[{"_uuid":`...)
	return [][]byte{append(appendUUID(b, f.row), "}]}"...)}
}

func (f fence) mark() ovsdb.OvsMap {
	mark := map[any]any{idEpoch: f.epoch}
	if f.datastore != "" {
		mark[idDatastore] = f.datastore
	}
	return ovsdb.OvsMap{GoMap: mark}
}

// claim writes our epoch into NB_Global, unless a later one is there, or one of
// another datastore. It makes the row in a database that no northd has seen yet.
func (s *session) claim(ctx context.Context) error {
	if s.fence.epoch == "" {
		return nil
	}
	results, err := s.claiming(ctx, ovsdb.Operation{
		Op: ovsdb.OperationSelect, Table: nb.NBGlobalTable, Columns: []string{"_uuid", "external_ids"},
	})
	if err != nil {
		return fmt.Errorf("read epoch: %w", err)
	}
	ops, row, err := s.fence.take(results[0].Rows)
	if err != nil {
		return err
	}
	results, err = s.claiming(ctx, ops...)
	if err != nil {
		return fmt.Errorf("claim epoch %s: %w", s.fence.epoch, err)
	}
	if row == "" {
		row = results[0].UUID.GoUUID
	}
	s.fence.row = row
	return nil
}

// claiming makes a transaction over the client.
func (s *session) claiming(ctx context.Context, ops ...ovsdb.Operation) ([]ovsdb.OperationResult, error) {
	results, err := s.call(ctx, ops...)
	if err == nil {
		_, err = ovsdb.CheckOperationResults(results, ops)
	}
	return results, err
}

// take are the operations that make our epoch the database's, given the rows of
// NB_Global, and the row's UUID if there is one. They fail when another writer
// is faster.
func (f fence) take(rows []ovsdb.Row) (ops []ovsdb.Operation, uuid string, err error) {
	if len(rows) == 0 {
		return []ovsdb.Operation{{
			Op: ovsdb.OperationInsert, Table: nb.NBGlobalTable, Row: ovsdb.Row{"external_ids": f.mark()},
		}}, "", nil
	}
	id, _ := rows[0]["_uuid"].(ovsdb.UUID)
	ids, _ := rows[0]["external_ids"].(ovsdb.OvsMap)
	present, _ := ids.GoMap[idEpoch].(string)
	if other, _ := ids.GoMap[idDatastore].(string); present != "" && other != "" && other != f.datastore {
		return nil, "", fmt.Errorf("claim epoch %s of datastore %q: %w; its datastore is %q", f.epoch, f.datastore, ErrForeign, other)
	}
	if number(present) > number(f.epoch) {
		return nil, "", fmt.Errorf("claim epoch %s: epoch %s is there: %w", f.epoch, present, ErrDeposed)
	}
	now := 0
	where := []ovsdb.Condition{ovsdb.NewCondition("_uuid", ovsdb.ConditionEqual, id)}
	return []ovsdb.Operation{
		{
			Op: ovsdb.OperationWait, Table: nb.NBGlobalTable, Timeout: &now, Until: "==", Columns: []string{"external_ids"},
			Where: where, Rows: []ovsdb.Row{{"external_ids": ids}},
		},
		{
			Op: ovsdb.OperationMutate, Table: nb.NBGlobalTable, Where: where,
			Mutations: []ovsdb.Mutation{
				*ovsdb.NewMutation("external_ids", ovsdb.MutateOperationDelete, ovsdb.OvsSet{GoSet: []any{idEpoch, idDatastore}}),
				*ovsdb.NewMutation("external_ids", ovsdb.MutateOperationInsert, f.mark()),
			},
		},
	}, id.GoUUID, nil
}

// number is the number that an epoch is; what is none is older than all.
func number(epoch string) uint64 {
	n, _ := strconv.ParseUint(epoch, 10, 64)
	return n
}
