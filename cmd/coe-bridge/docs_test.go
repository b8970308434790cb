package main

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the generated tables of docs/operations.md")

const operations = "../../docs/operations.md"

// The tables of flags and metrics are written from what there is:
// go test ./cmd/coe-bridge -run TestTables -update.
func TestTablesOfOperations(t *testing.T) {
	for name, table := range map[string]string{"flags": flagTable(t), "metrics": metricTable(t)} {
		t.Run(name, func(t *testing.T) {
			before, err := os.ReadFile(operations)
			require.NoError(t, err)
			block := regexp.MustCompile(`(?s)(<!-- generated: ` + name + ` -->\n).*?(<!-- end -->)`)
			require.True(t, block.Match(before), "there is a place for the table of %s", name)
			after := block.ReplaceAllFunc(before, func(b []byte) []byte {
				parts := block.FindSubmatch(b)
				return bytes.Join([][]byte{parts[1], parts[2]}, []byte("\n"+table+"\n"))
			})
			if *update {
				require.NoError(t, os.WriteFile(operations, after, 0o644))
				return
			}
			require.Equal(t, string(after), string(before), "write it anew: go test ./cmd/coe-bridge -run TestTables -update")
		})
	}
}

func flagTable(t *testing.T) string {
	serve, _, err := newRoot().Find([]string{"serve"})
	require.NoError(t, err)
	var text strings.Builder
	text.WriteString("| flag | default | meaning |\n|---|---|---|\n")
	each := func(f *pflag.Flag) {
		if f.Name == "help" {
			return
		}
		fmt.Fprintf(&text, "| `--%s` | %s | %s |\n", f.Name, shownDefault(f), f.Usage)
	}
	sorted(serve).VisitAll(each)
	return text.String()
}

// sorted are all flags that a command takes.
func sorted(cmd *cobra.Command) *pflag.FlagSet {
	all := pflag.NewFlagSet(cmd.Name(), pflag.ContinueOnError)
	all.AddFlagSet(cmd.Flags())
	all.AddFlagSet(cmd.InheritedFlags())
	return all
}

func shownDefault(f *pflag.Flag) string {
	if slices.Contains([]string{"", "[]", "false", "0"}, f.DefValue) {
		return ""
	}
	return "`" + f.DefValue + "`"
}

// metricTable is of what a bridge says of itself at /metrics once it has done
// something; those of Go and of the process are described elsewhere.
func metricTable(t *testing.T) string {
	b := bridgeFor(t)
	tell(t, b)
	status, text := b.Do(http.MethodGet, "/metrics", "")
	require.Equal(t, http.StatusOK, status)
	kinds := map[string]string{}
	type metric struct{ name, help string }
	var metrics []metric
	for line := range strings.Lines(text) {
		words := strings.SplitN(strings.TrimSpace(line), " ", 4)
		if len(words) > 2 && !strings.HasPrefix(words[2], "coe_bridge_") {
			continue
		}
		switch words[1] {
		case "HELP":
			metrics = append(metrics, metric{words[2], words[3]})
		case "TYPE":
			kinds[words[2]] = words[3]
		}
	}
	require.Len(t, kinds, len(metrics))
	slices.SortFunc(metrics, func(a, b metric) int { return cmp.Compare(a.name, b.name) })
	var out strings.Builder
	out.WriteString("| metric | type | meaning |\n|---|---|---|\n")
	for _, m := range metrics {
		fmt.Fprintf(&out, "| `%s` | %s | %s |\n", m.name, kinds[m.name], m.help)
	}
	return out.String()
}
