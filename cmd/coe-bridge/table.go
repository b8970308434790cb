package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

// output is the format in which a command prints.
type output string

func (o *output) register(cmd *cobra.Command) { o.registerAs(cmd, "table", "json", "yaml") }

// registerAs is register for a command that knows these formats, the first of which is
// the default.
func (o *output) registerAs(cmd *cobra.Command, formats ...output) {
	*o = formats[0]
	choice[output]{o, formats}.register(cmd, "output", "o", "")
}

// table is what a command prints as a table.
type table struct {
	title   string // said before the table
	columns []string
	rows    [][]string
	// empty is said instead of a table without rows.
	empty string
}

// print writes a table, or data as JSON or YAML.
func (o output) print(w io.Writer, t table, data any) error {
	switch o {
	case "json":
		text, err := json.MarshalIndent(data, "", "  ")
		if err != nil {
			return fmt.Errorf("write JSON: %w", err)
		}
		_, err = fmt.Fprintf(w, "%s\n", text)
		return err
	case "yaml":
		text, err := json.Marshal(data)
		if err == nil {
			text, err = toYAML(text)
		}
		if err != nil {
			return err
		}
		_, err = w.Write(text)
		return err
	}
	return t.print(w)
}

func (t table) print(w io.Writer) error {
	if t.title != "" {
		fmt.Fprintln(w, t.title)
	}
	if len(t.rows) == 0 && t.empty != "" {
		_, err := fmt.Fprintln(w, t.empty)
		return err
	}
	tw := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(tw, strings.Join(t.columns, "\t"))
	for _, row := range t.rows {
		for i, cell := range row {
			row[i] = cmp.Or(oneLine(cell), "-")
		}
		fmt.Fprintln(tw, strings.Join(row, "\t"))
	}
	return tw.Flush()
}
