package main

import (
	"context"
	"strings"

	"github.com/coe-bridge/coe-bridge/test/lab/nbrows"
)

// policyRows returns the operations that insert the rows of all policies again, with their UUIDs. An ACL that is in no
// port group belongs to something else.
func policyRows(ctx context.Context, endpoint string) ([]any, error) {
	tables := []string{"Port_Group", "Address_Set", "ACL"}
	var selects []any
	for _, t := range tables {
		selects = append(selects, nbrows.All("select", t))
	}
	results, err := nbrows.Transact(ctx, endpoint, selects...)
	if err != nil {
		return nil, err
	}
	var inserts []any
	groups := string(results[0])
	for n, result := range results {
		rows, err := nbrows.Selected(result, tables[n])
		if err != nil {
			return nil, err
		}
		for _, row := range rows {
			if tables[n] == "ACL" && !strings.Contains(groups, nbrows.ID(row)) {
				continue
			}
			inserts = append(inserts, nbrows.Insert(tables[n], row))
		}
	}
	return inserts, nil
}
