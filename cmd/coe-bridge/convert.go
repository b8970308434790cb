package main

import (
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coe-bridge/coe-bridge/cmd/bridge"
)

// movable are the backends that pods can be moved from and to.
var movable = []string{"ovn", "odl"}

func newConvert() *cobra.Command {
	var (
		from, to string
		out      output
		backend  backendFlags
	)
	cmd := &cobra.Command{
		Use:   "convert --to BACKEND",
		Short: "Plan a move from one backend to the other, and touch neither",
		Long: `convert reads what is ours in both backends and prints what the other would get, and
what it has no place for. It writes nothing. The move itself is made in three steps:

  1. serve --backend OLD,NEW: the bridge goes on with the old backend and fills the new one;
     coe-bridge status says how far it is.
  2. When the new one is in sync: serve --backend NEW,OLD. Then, node by node, give the
     switch to it: to odl, stop and disable ovn-controller, remove its flows from the
     bridge, and restart the agent with --backend odl --ovs-manager; to ovn, restart the
     agent with --backend ovn, which takes the switch from OpenDaylight, and start
     ovn-controller. Pods stay plugged in and keep their addresses. Those on nodes of
     different backends do not reach each other meanwhile.
  3. When all pods are reached: serve --backend NEW. What is left in the old one stays until
     somebody removes it; nobody writes there any more.

docs/opendaylight.md has the commands.`,
		Example: `  coe-bridge convert --to odl --ovn-nb unix:/run/ovn/ovnnb_db.sock --odl-url http://127.0.0.1:8181 --odl-auth-file odl.auth
  coe-bridge convert --to ovn --odl-auth-file odl.auth -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			from = movable[1-slices.Index(movable, to)]
			ends, err := backend.all([]string{from, to}, readOnce())
			if err != nil {
				return err
			}
			log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn}))
			c, err := bridge.Convert(cmd.Context(), ends[0], ends[1], log)
			if err != nil {
				return err
			}
			return printConversion(cmd.OutOrStdout(), out, from, to, c)
		},
	}
	choice[string]{&to, movable}.register(cmd, "to", "", "the backend to move to: "+strings.Join(movable, " or "))
	_ = cmd.MarkFlagRequired("to")
	backend.register(cmd)
	out.register(cmd)
	return cmd
}

// shownConversion is a conversion as JSON and YAML show it.
type shownConversion struct {
	From    string         `json:"from"`
	To      string         `json:"to"`
	Same    int            `json:"same"`
	Changes []shownChange  `json:"changes"`
	Lost    map[string]int `json:"lost"`
}

func printConversion(w io.Writer, out output, from, to string, c *bridge.Conversion) error {
	shown := shownConversion{from, to, c.Same, []shownChange{}, map[string]int{}}
	t := table{columns: []string{"CHANGE", "KIND", "NAME", "DETAILS"}, empty: fmt.Sprintf("%s has all that %s has", to, from)}
	for _, change := range c.Changes {
		shown.Changes = append(shown.Changes, showChange(change))
		o := change.New
		if o == nil {
			o = change.Old
		}
		t.rows = append(t.rows, []string{change.Verb(), change.Key().Kind.String(), change.Key().Name, details(o)})
	}
	t.title = fmt.Sprintf("from %s to %s: %d changes, %d objects are there already", from, to, len(c.Changes), c.Same)
	for kind, n := range c.Lost {
		shown.Lost[kind.String()] = n
	}
	for _, kind := range slices.Sorted(maps.Keys(shown.Lost)) {
		t.title += fmt.Sprintf("\n%s has no place for %d of kind %s", to, shown.Lost[kind], kind)
	}
	return out.print(w, t, shown)
}
