package plan

import (
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coe-bridge/coe-bridge/cmd/bridge"
	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/flags"
	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/output"
	"github.com/coe-bridge/coe-bridge/mapping/plan"
)

// movable are the backends that pods can be moved from and to.
var movable = []string{"ovn", "odl"}

// NewConvert returns the command convert.
func NewConvert() *cobra.Command {
	var (
		from, to string
		out      output.Format
		backend  flags.Backends
		mapping  flags.Mapping
	)
	cmd := &cobra.Command{
		Use:   "convert --to BACKEND",
		Short: "Show what a move from one backend to the other would change, and write nothing",
		Long: `convert reads the bridge's objects in both backends. It prints what would be written to
the new one, and what the new one has no form for. It writes nothing. Give it the
--isolation and the --ovn-layout of the bridge. Move in three steps:

  1. serve --backend OLD,NEW: the bridge uses the old backend and fills the new one;
     coe-bridge status shows the progress.
  2. When the new one is in sync: serve --backend odl,ovn, in both directions. OpenDaylight
     must come first as long as a node is with it: nodes lead its pods to services, and
     the bridge tells them so only if it comes first. Then switch over node by node.
     To odl: stop and disable ovn-controller, remove its flows from the bridge, and restart
     the agent with --backend odl --ovs-manager. To ovn: restart the agent with
     --backend ovn, which takes the switch from OpenDaylight, and start ovn-controller.
     Pods stay attached and keep their addresses. Until the end of this step, pods on nodes
     of different backends cannot reach each other.
  3. When all nodes are switched over: serve --backend NEW. The objects in the old backend
     stay until you remove them; the bridge writes nothing there any more.

docs/opendaylight.md has the commands.`,
		Example: `  coe-bridge convert --to odl --ovn-nb unix:/run/ovn/ovnnb_db.sock --odl-url http://192.168.33.5:8181 --odl-auth-file odl.auth
  coe-bridge convert --to ovn --odl-url http://192.168.33.5:8181 --odl-auth-file odl.auth -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			from = movable[1-slices.Index(movable, to)]
			settings, err := mapping.Settings()
			if err != nil {
				return err
			}
			ends, err := backend.All([]string{from, to}, flags.ReadOnce())
			if err != nil {
				return err
			}
			log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn}))
			c, err := bridge.Convert(cmd.Context(), settings.Isolation, ends[0], ends[1], log)
			if err != nil {
				return err
			}
			return printConversion(cmd.OutOrStdout(), out, from, to, c)
		},
	}
	flags.Choice[string]{Value: &to, Words: movable}.Register(cmd, "to", "", "the backend to move to: "+strings.Join(movable, " or "))
	_ = cmd.MarkFlagRequired("to")
	backend.Register(cmd)
	mapping.RegisterIsolation(cmd)
	out.Register(cmd)
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

func printConversion(w io.Writer, out output.Format, from, to string, c *plan.Conversion) error {
	shown := shownConversion{from, to, c.Same, []shownChange{}, map[string]int{}}
	t := output.Table{Columns: []string{"CHANGE", "KIND", "NAME", "DETAILS"}, Empty: fmt.Sprintf("%s has everything that %s has", to, from)}
	for _, change := range c.Changes {
		shown.Changes = append(shown.Changes, showChange(change))
		t.Rows = append(t.Rows, []string{change.Verb(), change.Key().Kind.String(), change.Key().Name, details(change.Object())})
	}
	t.Title = fmt.Sprintf("from %s to %s: %d changes, %d objects are the same", from, to, len(c.Changes), c.Same)
	for kind, n := range c.Lost {
		shown.Lost[kind.String()] = n
	}
	for _, kind := range slices.Sorted(maps.Keys(shown.Lost)) {
		t.Title += fmt.Sprintf("\n%s has no form for %d objects of kind %s", to, shown.Lost[kind], kind)
	}
	return out.Print(w, t, shown)
}
