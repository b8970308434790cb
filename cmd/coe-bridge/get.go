package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// watchInterval is how often -w looks again.
const watchInterval = 2 * time.Second

// resource is something that coe-bridge get shows.
type resource struct {
	name  string
	short string
	read  func(context.Context, *client) (table, any, error)
	// single tells that it is one thing, not a list.
	single bool
}

func newGet() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "get",
		Short: "Show what a running bridge knows",
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
			return fmt.Errorf("get %s: there is no such thing; want one of %s (coe-bridge get --help)", args[0], strings.Join(resourceNames(), ", "))
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

// isResource tells whether coe-bridge get shows something of that name, which may be in
// the singular.
func isResource(name string) bool {
	return slices.ContainsFunc(resources(), func(r resource) bool { return name == r.name || name == r.singular() })
}

// singular is the name of one of a list.
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

// newReader is a command that shows one resource, once or again and again.
func newReader(r resource) *cobra.Command {
	var (
		flags clientFlags
		out   output
		watch bool
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
			c, err := flags.client()
			if err != nil {
				return err
			}
			chosen := r.only(args)
			if !watch {
				return show(cmd.Context(), cmd.OutOrStdout(), c, chosen, out)
			}
			return showAgain(cmd.Context(), cmd.OutOrStdout(), c, chosen, out)
		},
	}
	flags.register(cmd)
	out.register(cmd)
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show again whenever it changes, until interrupted")
	if k, err := kindNamed(r.name); err == nil {
		withDocuments(cmd, k, &flags, &out)
	}
	return cmd
}

// withDocuments adds to a command that shows a kind how to get what apply takes.
func withDocuments(cmd *cobra.Command, k kind, flags *clientFlags, out *output) {
	wanted := cmd.Flags().Bool("documents", false, "print what was written, as apply -f takes it, in YAML or with -o json in JSON")
	cmd.MarkFlagsMutuallyExclusive("documents", "watch")
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		return completeNames(cmd, k, args), cobra.ShellCompDirectiveNoFileComp
	}
	show := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !*wanted {
			return show(cmd, args)
		}
		c, err := flags.editor()
		if err != nil {
			return err
		}
		return showDocuments(cmd.Context(), cmd.OutOrStdout(), c, k, args, *out)
	}
}

func show(ctx context.Context, w io.Writer, c *client, r resource, out output) error {
	t, data, err := r.read(ctx, c)
	if err != nil {
		return err
	}
	return out.print(w, t, data)
}

// showAgain prints whenever what it would print is different from the last time.
func showAgain(ctx context.Context, w io.Writer, c *client, r resource, out output) error {
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	last := ""
	for {
		var text strings.Builder
		if err := show(ctx, &text, c, r, out); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		if text.String() != last {
			if _, err := io.WriteString(w, out.separator(last == "")+text.String()); err != nil {
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

// separator stands before what is shown again.
func (o output) separator(first bool) string {
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
