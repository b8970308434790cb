// Package output prints what commands show: tables, JSON and YAML, with everything escaped
// that could mislead a terminal.
package output

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/flags"
)

// Format is the format in which a command prints: table, json or yaml.
type Format string

// Register adds -o to a command that knows all formats. The table is the default.
func (o *Format) Register(cmd *cobra.Command) { o.RegisterAs(cmd, "table", "json", "yaml") }

// RegisterAs adds -o to a command that knows these formats. The first is the default.
func (o *Format) RegisterAs(cmd *cobra.Command, formats ...Format) {
	*o = formats[0]
	flags.Choice[Format]{Value: o, Words: formats}.Register(cmd, "output", "o", "")
}

// Table is what a command shows as a table.
type Table struct {
	Title   string // printed before the table
	Columns []string
	Rows    [][]string
	// Empty is printed instead of a table without rows.
	Empty string
	// Note is printed after the table; empty for none.
	Note string
}

// Print writes the table, or the data as JSON or YAML.
func (o Format) Print(w io.Writer, t Table, data any) error {
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
			text, err = YAML(text)
		}
		if err != nil {
			return err
		}
		_, err = w.Write(text)
		return err
	}
	return t.Print(w)
}

// Print writes the table.
func (t Table) Print(w io.Writer) error {
	if t.Title != "" {
		fmt.Fprintln(w, t.Title)
	}
	if len(t.Rows) == 0 && t.Empty != "" {
		_, err := fmt.Fprintln(w, strings.TrimSuffix(t.Empty+"\n"+t.Note, "\n"))
		return err
	}
	tw := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(tw, strings.Join(t.Columns, "\t"))
	for _, row := range t.Rows {
		for i, cell := range row {
			row[i] = cmp.Or(OneLine(cell), "-")
		}
		fmt.Fprintln(tw, strings.Join(row, "\t"))
	}
	if err := tw.Flush(); err != nil || t.Note == "" {
		return err
	}
	_, err := fmt.Fprintln(w, t.Note)
	return err
}

// Listed is a list as JSON and YAML show it: [] if it is empty.
func Listed[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// Prefixed is a text with a prefix; empty for an empty text.
func Prefixed(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}
