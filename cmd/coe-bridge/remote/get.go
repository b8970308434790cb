package remote

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/entrykind"
	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/flags"
	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/output"
	"github.com/coe-bridge/coe-bridge/restconf/client"
)

// watchInterval is the interval of -w.
const watchInterval = 2 * time.Second

// resource is a list, or an object, that coe-bridge shows.
type resource struct {
	name  string
	short string
	read  func(context.Context, *client.Client) (output.Table, any, error)
	// single is set for one object, not a list.
	single bool
}

func newGet() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "get",
		Short: "Show the objects of a running bridge",
		Example: `  coe-bridge get pods
  coe-bridge get pods shop/web -o json
  coe-bridge get pods shop/web --documents > web.yaml # for apply -f
  coe-bridge get elan-instances -o yaml
  coe-bridge get problems -w
  COE_BRIDGE_PASSWORD=secret coe-bridge get pods --server https://bridge:8181 --ca-file ca.pem`,
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return fmt.Errorf("get %s: unknown; want one of %s (coe-bridge get --help)", args[0], strings.Join(resourceNames(), ", "))
		},
	}
	for _, r := range resources() {
		one := newReader(r)
		one.Use = r.name + " [NAME...]"
		one.Aliases = []string{r.singular()}
		one.Example = fmt.Sprintf("  coe-bridge get %[1]s\n  coe-bridge get %[1]s -o json\n  coe-bridge get %[1]s -w", r.name)
		cmd.AddCommand(one)
	}
	return cmd
}

// isResource reports whether coe-bridge get has a subcommand of this name, in singular or
// plural.
func isResource(name string) bool {
	return slices.ContainsFunc(resources(), func(r resource) bool { return name == r.name || name == r.singular() })
}

// singular is the name in singular.
func (r resource) singular() string {
	return strings.TrimSuffix(strings.Replace(r.name, "policies", "policy", 1), "s")
}

func resourceNames() []string {
	var names []string
	for _, r := range resources() {
		names = append(names, r.name)
	}
	return names
}

// newReader returns a command that shows one resource, once or repeatedly.
func newReader(r resource) *cobra.Command {
	var (
		bridge flags.Bridge
		out    output.Format
		watch  bool
	)
	cmd := &cobra.Command{
		Use:   r.name,
		Short: r.short,
		Args: func(cmd *cobra.Command, args []string) error {
			if r.single && len(args) > 0 {
				return fmt.Errorf("%s %s: it takes no name", cmd.CommandPath(), args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := bridge.Client()
			if err != nil {
				return err
			}
			chosen := r.only(strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" "), args)
			if !watch {
				return show(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), c, chosen, out)
			}
			return showAgain(cmd.Context(), cmd.OutOrStdout(), c, chosen, out)
		},
	}
	bridge.Register(cmd)
	out.Register(cmd)
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show each change, until interrupted")
	if k, err := entrykind.Named(r.name); err == nil {
		withDocuments(cmd, k, &bridge, &out)
	}
	return cmd
}

// withDocuments adds --documents to a command that shows a kind.
func withDocuments(cmd *cobra.Command, k entrykind.Kind, bridge *flags.Bridge, out *output.Format) {
	wanted := cmd.Flags().Bool("documents", false, "print the entries as files for apply, in YAML, or in JSON with -o json")
	cmd.MarkFlagsMutuallyExclusive("documents", "watch")
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		return completeNames(cmd, k, args), cobra.ShellCompDirectiveNoFileComp
	}
	show := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !*wanted {
			return show(cmd, args)
		}
		c, err := newEditor(bridge)
		if err != nil {
			return err
		}
		return showDocuments(cmd.Context(), cmd.OutOrStdout(), c, k, args, *out)
	}
}

// show prints a resource once. The note of a table goes to notes if the format is JSON or YAML.
func show(ctx context.Context, w, notes io.Writer, c *client.Client, r resource, out output.Format) error {
	t, data, err := r.read(ctx, c)
	if err == nil && t.Note != "" && out != "table" {
		_, err = fmt.Fprintln(notes, t.Note)
	}
	if err != nil {
		return err
	}
	return out.Print(w, t, data)
}

// showAgain prints whenever the output has changed.
func showAgain(ctx context.Context, w io.Writer, c *client.Client, r resource, out output.Format) error {
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	last := ""
	for {
		var text strings.Builder
		if err := show(ctx, &text, io.Discard, c, r, out); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		if text.String() != last {
			if _, err := io.WriteString(w, separator(out, last == "")+text.String()); err != nil {
				return err
			}
			last = text.String()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// separator is printed before each output but the first.
func separator(o output.Format, first bool) string {
	switch {
	case first:
		return ""
	case o == "yaml":
		return "---\n"
	case o == "table":
		return "\n" + time.Now().Format(time.TimeOnly) + "\n"
	}
	return ""
}
