package connectivity

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/output"
	"github.com/coe-bridge/coe-bridge/coe/kube/connectivity"
)

// show prints a report.
func show(w io.Writer, format output.Format, r *connectivity.Report) error {
	if err := format.Print(w, summary(r), r); err != nil || format != "table" {
		return err
	}
	return printFailures(w, r)
}

// summary has a row for each kind of check.
func summary(r *connectivity.Report) output.Table {
	title := fmt.Sprintf("tested nodes: %s (%d of %d)", output.OneLine(strings.Join(r.Nodes, ", ")), len(r.Nodes), r.AllNodes)
	t := output.Table{Title: title, Columns: []string{"CHECK", "WHAT", "RESULT"}}
	for _, kind := range connectivity.Kinds() {
		if results := r.ByKind(kind); len(results) > 0 {
			t.Rows = append(t.Rows, []string{string(kind), kind.Title(), verdict(results)})
		}
	}
	return t
}

// verdict describes the results of a kind.
func verdict(results []connectivity.Result) string {
	passed, failed, skipped := connectivity.Count(results)
	var parts []string
	for _, part := range []struct {
		number int
		status connectivity.Status
	}{{failed, connectivity.Failed}, {passed, connectivity.Passed}, {skipped, connectivity.Skipped}} {
		if part.number > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", part.number, part.status))
		}
	}
	text := strings.Join(parts, ", ")
	if reasons := reasons(results); len(reasons) > 0 {
		text += ": " + strings.Join(reasons, "; ")
	}
	return text
}

// reasons returns the different reasons of skipped checks.
func reasons(results []connectivity.Result) (all []string) {
	for _, r := range results {
		if r.Status == connectivity.Skipped && !slices.Contains(all, r.Reason) {
			all = append(all, r.Reason)
		}
	}
	return all
}

// printFailures prints the failed checks with their reasons, and below each kind what to do.
func printFailures(w io.Writer, r *connectivity.Report) error {
	if r.Failed == 0 {
		return nil
	}
	t := output.Table{Title: "\nfailed (repair them in this order, because later checks need what earlier ones check):", Columns: []string{"CHECK", "WAY", "REASON"}}
	for _, kind := range connectivity.Kinds() {
		var next []string
		for _, one := range r.ByKind(kind) {
			if one.Status != connectivity.Failed {
				continue
			}
			t.Rows = append(t.Rows, []string{string(kind), one.Way(), one.Reason})
			if !slices.Contains(next, one.Next) {
				next = append(next, one.Next)
			}
		}
		for _, step := range next {
			t.Rows = append(t.Rows, []string{" ", " ", "=> " + step})
		}
	}
	return t.Print(w)
}
