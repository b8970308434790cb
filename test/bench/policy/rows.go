package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
)

// all returns the operation on all rows of a table (RFC 7047, section 5.2).
func all(op, table string) map[string]any {
	return map[string]any{"op": op, "table": table, "where": []any{}}
}

// policyRows returns the operations that insert the rows of all policies again, with their UUIDs. An ACL that is in no
// port group belongs to something else.
func policyRows(ctx context.Context, endpoint string) ([]any, error) {
	tables := []string{"Port_Group", "Address_Set", "ACL"}
	var selects []any
	for _, t := range tables {
		selects = append(selects, all("select", t))
	}
	results, err := transact(ctx, endpoint, selects...)
	if err != nil {
		return nil, err
	}
	var inserts []any
	groups := string(results[0])
	for n, result := range results {
		var selected struct{ Rows []map[string]any }
		if err := json.Unmarshal(result, &selected); err != nil {
			return nil, fmt.Errorf("read the rows of %s: %w", tables[n], err)
		}
		for _, row := range selected.Rows {
			id := row["_uuid"].([]any)[1].(string)
			if tables[n] == "ACL" && !strings.Contains(groups, id) {
				continue
			}
			delete(row, "_uuid")
			delete(row, "_version")
			inserts = append(inserts, map[string]any{"op": "insert", "table": tables[n], "uuid": id, "row": row})
		}
	}
	return inserts, nil
}

// transact makes a transaction in the northbound database at endpoint, and returns the results.
func transact(ctx context.Context, endpoint string, ops ...any) (results []json.RawMessage, err error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", strings.TrimPrefix(endpoint, "unix:"))
	if err != nil {
		return nil, fmt.Errorf("write bare rows: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	request := map[string]any{"method": "transact", "id": 0, "params": append([]any{"OVN_Northbound"}, ops...)}
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
