// Package nbrows reads and writes rows of OVN's databases without a client library, as a reference for measurements.
package nbrows

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
)

// All returns the operation on all rows of a table (RFC 7047, section 5.2).
func All(op, table string) map[string]any {
	return map[string]any{"op": op, "table": table, "where": []any{}}
}

// The names of OVN's databases.
const (
	Northbound = "OVN_Northbound"
	Southbound = "OVN_Southbound"
)

// Transact makes a transaction in the northbound database at endpoint, and returns the results.
func Transact(ctx context.Context, endpoint string, ops ...any) ([]json.RawMessage, error) {
	return TransactIn(ctx, endpoint, Northbound, ops...)
}

// TransactIn is Transact for a database with a name.
func TransactIn(ctx context.Context, endpoint, database string, ops ...any) (results []json.RawMessage, err error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", strings.TrimPrefix(endpoint, "unix:"))
	if err != nil {
		return nil, fmt.Errorf("write bare rows: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	request := map[string]any{"method": "transact", "id": 0, "params": append([]any{database}, ops...)}
	if err := json.NewEncoder(conn).Encode(request); err != nil {
		return nil, fmt.Errorf("write bare rows: %w", err)
	}
	var answer struct {
		Result []json.RawMessage
		Error  any
	}
	if err := json.NewDecoder(conn).Decode(&answer); err != nil {
		return nil, fmt.Errorf("write bare rows: %w", err)
	}
	for _, result := range answer.Result {
		var failed struct{ Error, Details string }
		if json.Unmarshal(result, &failed) == nil && failed.Error != "" {
			answer.Error = failed
		}
	}
	if answer.Error != nil {
		return nil, fmt.Errorf("write bare rows: the server answers %v", answer.Error)
	}
	return answer.Result, nil
}

// Read returns the rows of a table, with their columns.
func Read(ctx context.Context, endpoint, table string) ([]map[string]any, error) {
	results, err := Transact(ctx, endpoint, All("select", table))
	if err != nil {
		return nil, err
	}
	return Selected(results[0], table)
}

// Selected returns the rows of the result of a select on a table.
func Selected(result json.RawMessage, table string) ([]map[string]any, error) {
	var selected struct{ Rows []map[string]any }
	if err := json.Unmarshal(result, &selected); err != nil {
		return nil, fmt.Errorf("read the rows of %s: %w", table, err)
	}
	return selected.Rows, nil
}

// Insert returns the operation that inserts a row that was read again, with its UUID.
func Insert(table string, row map[string]any) map[string]any {
	id := ID(row)
	delete(row, "_uuid")
	delete(row, "_version")
	return map[string]any{"op": "insert", "table": table, "uuid": id, "row": row}
}

// ID returns the UUID of a row that was read.
func ID(row map[string]any) string { return row["_uuid"].([]any)[1].(string) }
