package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/entrykind"
	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/flags"
	"github.com/coe-bridge/coe-bridge/restconf/client"
	"github.com/coe-bridge/coe-bridge/restconf/document"
	"github.com/coe-bridge/coe-bridge/yang"
)

func newDelete() *cobra.Command {
	var (
		bridge flags.Bridge
		files  []string
		how    dryRun
		d      deleter
	)
	cmd := &cobra.Command{
		Use:   "delete -f FILE | KIND NAME...",
		Short: "Remove entries from a bridge",
		Long: `delete removes the entries in files, which apply would write, or entries of a kind:
` + entrykind.List() + `.

NAME is the key of an entry (a uid, or the network of a pool), its name if no other entry
has it, or NAMESPACE/NAME. A file, or all names of one command, is one transaction: all of
it is deleted, or nothing. Delete objects of Kubernetes there, not here.`,
		Example: `  coe-bridge delete -f pods.yaml
  coe-bridge delete pod shop/web
  coe-bridge delete pods 8f2a6d5e-0000-4000-8000-000000000001 8f2a6d5e-0000-4000-8000-000000000002
  coe-bridge delete pool services --dry-run server`,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(files) > 0 && len(args) > 0:
				return errors.New("delete: name files with -f, or a kind and names, not both")
			case len(files) == 0 && len(args) < 2:
				return errors.New("delete: name files with -f, or a kind and names, as in coe-bridge delete pod shop/web")
			}
			return nil
		},
		ValidArgsFunction: completeEntries,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if d.client, err = newEditor(&bridge); err != nil {
				return err
			}
			d.how, d.results = how, reporter{out: "table", w: cmd.OutOrStdout()}
			all, err := d.named(cmd.Context(), cmd.InOrStdin(), files, args)
			if err != nil {
				return err
			}
			var wrong []error
			for _, f := range all {
				wrong = append(wrong, d.delete(cmd.Context(), f))
			}
			return errors.Join(wrong...)
		},
	}
	registerFiles(cmd, &files)
	cmd.Flags().BoolVar(&d.ignoreMissing, "ignore-not-found", false, "an entry that does not exist is not an error")
	how.register(cmd)
	bridge.Register(cmd)
	return cmd
}

// deleter removes entries.
type deleter struct {
	client        *editor
	how           dryRun
	ignoreMissing bool
	byName        bool // not by files
	results       reporter
}

// named returns the entries to delete: from files, or by kind and name.
func (d *deleter) named(ctx context.Context, stdin io.Reader, files, args []string) ([]entries, error) {
	if len(files) > 0 {
		return readEntries(d.client.catalog, stdin, files)
	}
	k, err := entrykind.Named(args[0])
	if err != nil {
		return nil, fmt.Errorf("delete %s: %w", args[0], err)
	}
	if d.how == dryRunClient {
		return nil, fmt.Errorf("delete %s: names need a bridge, and --dry-run client asks none: name files with -f, or use --dry-run server", args[0])
	}
	d.byName = true
	found, missing, err := d.client.find(ctx, k, args[1:])
	if err != nil {
		return nil, fmt.Errorf("delete: %w", err)
	}
	if len(missing) > 0 && !d.ignoreMissing {
		return nil, fmt.Errorf("delete %s %s: not found; coe-bridge get %s lists all", k.Singular, strings.Join(missing, ", "), k.Name)
	}
	if len(found) == 0 {
		return nil, nil
	}
	return []entries{found}, nil
}

// find returns the entries of a kind with these names, each once, and the names that are
// missing.
func (c *editor) find(ctx context.Context, k entrykind.Kind, names []string) (found entries, missing []string, err error) {
	all, err := c.entries(ctx, "/"+k.Top)
	if err != nil {
		return nil, nil, err
	}
	for _, name := range names {
		var called entries
		for _, e := range all {
			if k.Has(e) && entrykind.Calls(e, name) {
				called = append(called, e)
			}
		}
		switch {
		case len(called) == 0:
			missing = append(missing, name)
		case len(called) > 1:
			return nil, nil, fmt.Errorf("%s %s: several have this name: %s; name one by its key", k.Singular, name, called.titles())
		case !slices.Contains(found, called[0]):
			found = append(found, called[0])
		}
	}
	return found, missing, nil
}

func (f entries) titles() string {
	var titles []string
	for _, e := range f {
		titles = append(titles, entrykind.Title(e))
	}
	return strings.Join(titles, ", ")
}

// delete removes the entries of one file, or none. Leaves of a container stay.
func (d *deleter) delete(ctx context.Context, f entries) error {
	f = slices.DeleteFunc(f, func(e *document.Entry) bool { return e.Key == nil })
	if len(f) == 0 {
		return nil
	}
	at, operation := f.common(), "delete"
	there := map[string]*document.Entry{}
	if d.ignoreMissing || d.how == dryRunClient {
		operation = "remove"
	}
	if d.how != dryRunClient {
		var err error
		if _, there, err = d.client.state(ctx, at, f); err != nil {
			return fmt.Errorf("delete: %w", err)
		}
		if err := d.remove(ctx, at, operation, f); err != nil {
			return err
		}
	}
	for _, e := range f {
		switch {
		case d.how == dryRunClient || there[e.Target()] != nil:
			d.results.add(e, "deleted", d.how)
		default:
			d.results.add(e, "not found", d.how)
		}
	}
	return nil
}

func (d *deleter) remove(ctx context.Context, at, operation string, f entries) error {
	edits := make([]client.Edit, len(f))
	for i, e := range f {
		edits[i] = client.Edit{ID: strconv.Itoa(i), Operation: operation, Target: below(at, e.Target())}
	}
	err := d.client.Patch(ctx, at, "", d.how == dryRunServer, edits)
	if d.byName {
		return f.refused(err, func(e *document.Entry, one *yang.Error) error {
			return fmt.Errorf("delete %s %s: %s", entrykind.Singular(e), cmp.Or(entrykind.Label(e), strings.Join(e.Key, ",")), one.Message)
		})
	}
	return f.located(err)
}
