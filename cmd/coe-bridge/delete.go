package main

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

	"github.com/coe-bridge/coe-bridge/restconf/document"
	"github.com/coe-bridge/coe-bridge/yang"
)

func newDelete() *cobra.Command {
	var (
		flags clientFlags
		files []string
		how   dryRun
		d     deleter
	)
	cmd := &cobra.Command{
		Use:   "delete -f FILE | KIND NAME...",
		Short: "Remove entries from a bridge",
		Long: `delete removes the entries that files name, as apply reads them, or entries of a kind:
` + kindList() + `.

NAME is an entry's key (a uid, or a pool's network), its name where no other has it too,
or NAMESPACE/NAME. A file, and what one command names, is one transaction: all of it
goes, or nothing. What Kubernetes says can't be deleted here: delete it there.`,
		Example: `  coe-bridge delete -f pods.yaml
  coe-bridge delete pod shop/web
  coe-bridge delete pods 8f2a6d5e-0000-4000-8000-000000000001 8f2a6d5e-0000-4000-8000-000000000002
  coe-bridge delete pool services --dry-run server`,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(files) > 0 && len(args) > 0:
				return errors.New("delete: name files with -f, or a kind and names, not both")
			case len(files) == 0 && len(args) < 2:
				return errors.New("delete: name files with -f, or a kind and what to delete, as in coe-bridge delete pod shop/web")
			}
			return nil
		},
		ValidArgsFunction: completeEntries,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if d.client, err = flags.editor(); err != nil {
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
	cmd.Flags().BoolVar(&d.ignoreMissing, "ignore-not-found", false, "what is not there is no error")
	how.register(cmd)
	flags.register(cmd)
	return cmd
}

func kindList() string { return strings.Join(kindNames(), ", ") }

// deleter removes entries.
type deleter struct {
	client        *editor
	how           dryRun
	ignoreMissing bool
	byName        bool // not by files
	results       reporter
}

// named are the entries to delete: those of files, or those of a kind with these names.
func (d *deleter) named(ctx context.Context, stdin io.Reader, files, args []string) ([]entries, error) {
	if len(files) > 0 {
		return d.client.catalog.readEntries(stdin, files)
	}
	k, err := kindNamed(args[0])
	if err != nil {
		return nil, fmt.Errorf("delete %s: %w", args[0], err)
	}
	if d.how == dryRunClient {
		return nil, fmt.Errorf("delete %s: --dry-run client reads files and asks no bridge, which alone knows names: name files with -f, or say --dry-run server", args[0])
	}
	d.byName = true
	found, missing, err := d.client.find(ctx, k, args[1:])
	if err != nil {
		return nil, fmt.Errorf("delete: %w", err)
	}
	if len(missing) > 0 && !d.ignoreMissing {
		return nil, fmt.Errorf("delete %s %s: not found; coe-bridge get %s lists those there are", k.singular, strings.Join(missing, ", "), k.name)
	}
	if len(found) == 0 {
		return nil, nil
	}
	return []entries{found}, nil
}

// find finds the entries of a kind that names call, each once, and the names that call
// none.
func (c *editor) find(ctx context.Context, k kind, names []string) (found entries, missing []string, err error) {
	all, err := c.entries(ctx, "/"+k.top)
	if err != nil {
		return nil, nil, err
	}
	for _, name := range names {
		var called entries
		for _, e := range all {
			if k.isOf(e) && isCalled(e, name) {
				called = append(called, e)
			}
		}
		switch {
		case len(called) == 0:
			missing = append(missing, name)
		case len(called) > 1:
			return nil, nil, fmt.Errorf("%s %s: there are several: %s; name one by its key", k.singular, name, called.titles())
		case !slices.Contains(found, called[0]):
			found = append(found, called[0])
		}
	}
	return found, missing, nil
}

func (f entries) titles() string {
	var titles []string
	for _, e := range f {
		titles = append(titles, title(e))
	}
	return strings.Join(titles, ", ")
}

// delete removes the entries of one file, or none of them. What stands beside entries in
// a container stays.
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
	edits := make([]edit, len(f))
	for i, e := range f {
		edits[i] = edit{ID: strconv.Itoa(i), Operation: operation, Target: below(at, e.Target())}
	}
	err := d.client.patch(ctx, at, "", d.how == dryRunServer, edits)
	if d.byName {
		return f.refused(err, func(e *document.Entry, one *yang.Error) error {
			return fmt.Errorf("delete %s %s: %s", singular(e), cmp.Or(label(e), strings.Join(e.Key, ",")), one.Message)
		})
	}
	return f.located(err)
}
