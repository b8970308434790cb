package ovn

import (
	"context"
	"fmt"

	libovsdb "github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
)

// RequestInForce asks OVN to report when all hosts have what the database has now. The result is for InForce.
func (b *Backend) RequestInForce(ctx context.Context) (number int, err error) {
	rows, err := b.global(ctx,
		libovsdb.Operation{Op: libovsdb.OperationMutate, Table: nb.NBGlobalTable, Mutations: []libovsdb.Mutation{
			*libovsdb.NewMutation("nb_cfg", libovsdb.MutateOperationAdd, 1),
		}, Where: []libovsdb.Condition{libovsdb.NewCondition("nb_cfg", libovsdb.ConditionGreaterThanOrEqual, 0)}}) // the only row
	if err != nil {
		return 0, fmt.Errorf("ask OVN what its hosts have: %w", err)
	}
	return integer(rows, "nb_cfg"), nil
}

// InForce reports whether northd and all hosts have what the database had at a request. A host that is gone is missing for
// ever, so the caller must have a deadline for hosts.
func (b *Backend) InForce(ctx context.Context, number int) (northd, hosts bool, err error) {
	rows, err := b.global(ctx)
	if err != nil {
		return false, false, fmt.Errorf("ask OVN what its hosts have: %w", err)
	}
	return integer(rows, "sb_cfg") >= number, integer(rows, "hv_cfg") >= number, nil
}

// global makes operations, and returns the numbers of NB_Global after them.
func (b *Backend) global(ctx context.Context, ops ...libovsdb.Operation) (rows []libovsdb.Row, err error) {
	err = b.with(ctx, func(s *session) error {
		rows, err = s.global(ctx, ops...)
		return err
	})
	return rows, err
}

// global is Backend.global.
func (s *session) global(ctx context.Context, ops ...libovsdb.Operation) (rows []libovsdb.Row, err error) {
	results, err := s.claiming(ctx, append(ops, libovsdb.Operation{
		Op: libovsdb.OperationSelect, Table: nb.NBGlobalTable, Columns: []string{"nb_cfg", "sb_cfg", "hv_cfg"},
	})...)
	if err != nil {
		return nil, err
	}
	if rows = results[len(results)-1].Rows; len(rows) != 1 {
		return nil, fmt.Errorf("the northbound database has %d rows of NB_Global", len(rows))
	}
	return rows, nil
}

func integer(rows []libovsdb.Row, column string) int {
	switch n := rows[0][column].(type) {
	case int:
		return n
	case float64:
		return int(n)
	}
	return 0
}
