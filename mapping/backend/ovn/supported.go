package ovn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	libovsdb "github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
)

// ErrUnsupported reports that the northbound database or its server is too old. Nothing is written to it.
var ErrUnsupported = errors.New("the bridge needs OVN 22.12 and Open vSwitch 3.1, or later")

// releaseTable came with OVN 22.12. That is also the first release with options that the backend writes and that no schema shows
// (affinity_timeout of load balancers).
const releaseTable = "Chassis_Template_Var"

// supported returns ErrUnsupported unless the database has the tables and columns in use, and its server accepts UUIDs for new
// rows. It looks at what is there, not at versions.
func (s *session) supported(ctx context.Context) error {
	if lacks := lacking(s.client.Schema()); len(lacks) > 0 {
		return fmt.Errorf("%w: the schema of the northbound database lacks %s", ErrUnsupported, strings.Join(lacks, ", "))
	}
	results, err := s.call(ctx,
		libovsdb.Operation{Op: libovsdb.OperationInsert, Table: nb.LoadBalancerGroupTable, UUID: uuid.NewString(), Row: libovsdb.Row{"name": uuid.NewString()}},
		libovsdb.Operation{Op: libovsdb.OperationAbort}, // so nothing is inserted
	)
	if err != nil {
		return err
	}
	if len(results) > 0 && results[0].Error == "syntax error" {
		return fmt.Errorf("%w: the server of the northbound database accepts no UUIDs for new rows: %s", ErrUnsupported, results[0].Details)
	}
	return nil
}

// lacking returns the tables and columns that a schema lacks.
func lacking(schema libovsdb.DatabaseSchema) (lacks []string) {
	if schema.Table(releaseTable) == nil {
		lacks = append(lacks, releaseTable)
	}
	for name, want := range nb.Schema().Tables {
		table := schema.Table(name)
		if table == nil {
			lacks = append(lacks, name)
			continue
		}
		for column, want := range want.Columns {
			have := table.Column(column)
			if have == nil || libovsdb.NativeType(have) != libovsdb.NativeType(want) {
				lacks = append(lacks, name+"."+column)
			}
		}
	}
	slices.Sort(lacks)
	return lacks
}
