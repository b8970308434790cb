package ovn

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	libovsdb "github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/ovsdb"
)

// The keys in NB_Global's external_ids that name the writer.
const (
	idEpoch     = "coe-bridge/epoch"
	idDatastore = "coe-bridge/datastore" // that counts the epoch
	idSession   = "coe-bridge/session"   // that writes; random
)

// ErrDeposed reports that a later writer has claimed the database. It is final for
// this writer's epoch.
var ErrDeposed = errors.New("a later writer has claimed the northbound database")

// ErrOtherDatastore reports that the database belongs to a bridge with another
// datastore. The backend does not write to it, because it would remove every object
// that its own datastore does not have. An operator can release the database.
var ErrOtherDatastore = errors.New("the northbound database belongs to a bridge with another datastore: " +
	"give this bridge its own database; or stop the other bridge for good, and remove coe-bridge/epoch from NB_Global's external_ids")

// fence keeps out a writer that has been replaced: each transaction begins with a wait,
// without delay, for the writer's epoch in NB_Global. A database that was wiped or
// restored has another NB_Global row, or none, so the wait fails there too.
//
// Each session writes a name of its own beside the epoch. So a transaction of an earlier
// session that the server still has fails. A member of a cluster can write the name only
// together with a majority. So its rows are not older than the claim.
type fence struct {
	epoch     string // "" disables the fence
	datastore string // that counts the epoch; may be ""
	session   string
	row       string // UUID of the NB_Global row
}

// guard returns the operations that a transaction begins with.
func (f fence) guard() []ovsdb.Operation {
	if f.epoch == "" {
		return nil
	}
	return []ovsdb.Operation{ovsdb.NewWait(nb.NBGlobalTable, f.row, f.mark())}
}

// mark returns the external_ids of NB_Global while this writer has the database.
func (f fence) mark() map[string]string {
	mark := map[string]string{idEpoch: f.epoch, idSession: f.session}
	if f.datastore != "" {
		mark[idDatastore] = f.datastore
	}
	return mark
}

func (f fence) libovsdbMark() libovsdb.OvsMap {
	mark, _ := libovsdb.NewOvsMap(f.mark()) // fails for a value that is not a map
	return mark
}

// claim writes our epoch into NB_Global, unless it has a later epoch or an epoch of
// another datastore. It inserts the row if ovn-northd has not done so yet.
func (s *session) claim(ctx context.Context) error {
	if s.fence.epoch == "" {
		return nil
	}
	results, err := s.claiming(ctx, libovsdb.Operation{
		Op: libovsdb.OperationSelect, Table: nb.NBGlobalTable, Columns: []string{"_uuid", "external_ids"},
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

// claiming makes a transaction with the libovsdb client.
func (s *session) claiming(ctx context.Context, ops ...libovsdb.Operation) ([]libovsdb.OperationResult, error) {
	results, err := s.call(ctx, ops...)
	if err == nil {
		_, err = libovsdb.CheckOperationResults(results, ops)
	}
	return results, err
}

// take returns the operations that write our epoch into NB_Global, given its rows, and
// the row's UUID if there is one. The operations fail if another writer is faster.
func (f fence) take(rows []libovsdb.Row) (ops []libovsdb.Operation, uuid string, err error) {
	if len(rows) == 0 {
		return []libovsdb.Operation{{
			Op: libovsdb.OperationInsert, Table: nb.NBGlobalTable, Row: libovsdb.Row{"external_ids": f.libovsdbMark()},
		}}, "", nil
	}
	id, _ := rows[0]["_uuid"].(libovsdb.UUID)
	ids, _ := rows[0]["external_ids"].(libovsdb.OvsMap)
	present, _ := ids.GoMap[idEpoch].(string)
	if other, _ := ids.GoMap[idDatastore].(string); present != "" && other != "" && other != f.datastore {
		return nil, "", fmt.Errorf("claim epoch %s of datastore %q: %w; its datastore is %q", f.epoch, f.datastore, ErrOtherDatastore, other)
	}
	if number(present) > number(f.epoch) {
		return nil, "", fmt.Errorf("claim epoch %s: epoch %s is there: %w", f.epoch, present, ErrDeposed)
	}
	now := 0
	where := []libovsdb.Condition{libovsdb.NewCondition("_uuid", libovsdb.ConditionEqual, id)}
	return []libovsdb.Operation{
		{
			Op: libovsdb.OperationWait, Table: nb.NBGlobalTable, Timeout: &now, Until: "==", Columns: []string{"external_ids"},
			Where: where, Rows: []libovsdb.Row{{"external_ids": ids}},
		},
		{
			Op: libovsdb.OperationMutate, Table: nb.NBGlobalTable, Where: where,
			Mutations: []libovsdb.Mutation{
				*libovsdb.NewMutation("external_ids", libovsdb.MutateOperationDelete, libovsdb.OvsSet{GoSet: []any{idEpoch, idDatastore, idSession}}),
				*libovsdb.NewMutation("external_ids", libovsdb.MutateOperationInsert, f.libovsdbMark()),
			},
		},
	}, id.GoUUID, nil
}

// holds reports whether the external_ids of NB_Global name this session.
func (f fence) holds(ids map[string]string) bool {
	return ids[idEpoch] == f.epoch && ids[idDatastore] == f.datastore && ids[idSession] == f.session
}

// number returns an epoch as a number; text that is not a number is the oldest epoch.
func number(epoch string) uint64 {
	n, _ := strconv.ParseUint(epoch, 10, 64)
	return n
}
