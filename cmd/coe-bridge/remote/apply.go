package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/entrykind"
	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/flags"
	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/output"
	"github.com/coe-bridge/coe-bridge/restconf/client"
	"github.com/coe-bridge/coe-bridge/restconf/document"
)

// dryRun is how far apply and delete go.
type dryRun string

const (
	dryRunNone   dryRun = "none"
	dryRunClient dryRun = "client"
	dryRunServer dryRun = "server"
)

func (d *dryRun) register(cmd *cobra.Command) {
	*d = dryRunNone
	flags.Choice[dryRun]{Value: d, Words: []dryRun{dryRunNone, dryRunClient, dryRunServer}}.Register(cmd, "dry-run", "",
		"none, client (check the files without a bridge) or server (let the bridge check them and write nothing)")
}

// suffix is printed after a result that was not written.
func (d dryRun) suffix() string {
	if d == dryRunNone {
		return ""
	}
	return " (" + string(d) + " dry run)"
}

func newApply() *cobra.Command {
	var (
		bridge flags.Bridge
		files  []string
		how    dryRun
		out    output.Format
	)
	cmd := &cobra.Command{
		Use:   "apply -f FILE",
		Short: "Write the entries in files to a bridge",
		Long: `apply reads YAML or JSON files, and makes each entry (a pod, a service, a node, a pool)
equal to its file: it creates or replaces the entry, or leaves it unchanged. Entries that
are not in the files stay.

A document is RFC 7951 data, as in RESTCONF: a top container ("pod:coe": {"pods": …}), or
a list in one ("pod:pods": …). A file may have several documents, with lines of ---
between them. The output of get --documents can be applied.

Each file is one transaction: all of it is written, or nothing. Files are applied one
after the other; of a folder, the files that end in .yaml, .yml or .json, by name. If
another client changes an entry at the same time, nothing of the file is written.

An error names its file and line. The exit status is 1 then.`,
		Example: `  coe-bridge apply -f pods.yaml
  coe-bridge apply -f network/ --dry-run server
  coe-bridge get pods shop/web --documents > web.yaml # then edit the file
  coe-bridge apply -f web.yaml
  echo '{"pod:pods": [{"uid": "8f2a6d5e-0000-4000-8000-000000000001", "name": "web"}]}' | coe-bridge apply -f -`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := newEditor(&bridge)
			if err != nil {
				return err
			}
			read, err := readEntries(c.catalog, cmd.InOrStdin(), files)
			if err != nil {
				return err
			}
			a := &applier{client: c, how: how, results: reporter{out: out, w: cmd.OutOrStdout()}}
			return errors.Join(a.applyAll(cmd.Context(), read), a.results.end())
		},
	}
	registerFiles(cmd, &files)
	how.register(cmd)
	out.Register(cmd)
	bridge.Register(cmd)
	return cmd
}

// attempts is how often apply reads and writes when another client writes too.
const attempts = 5

// applier writes the entries of files.
type applier struct {
	client  *editor
	how     dryRun
	results reporter
}

// applyAll applies file after file, and returns all errors.
func (a *applier) applyAll(ctx context.Context, files []entries) error {
	var wrong []error
	for _, f := range files {
		var err error
		if a.how == dryRunClient {
			err = a.judge(f)
		} else {
			err = a.apply(ctx, f)
		}
		if ctx.Err() != nil {
			return err
		}
		wrong = append(wrong, err)
	}
	return errors.Join(wrong...)
}

// judge checks a file without a bridge.
func (a *applier) judge(f entries) error {
	var wrong []error
	for _, e := range f {
		wrong = append(wrong, e.Problems...)
		if len(e.Problems) == 0 {
			a.results.add(e, "valid", a.how)
		}
	}
	return errors.Join(wrong...)
}

// apply writes all entries of a file, or none.
func (a *applier) apply(ctx context.Context, f entries) error {
	at := f.common()
	var first map[string]*document.Entry
	for range attempts {
		match, there, err := a.client.state(ctx, at, f)
		if err != nil {
			return fmt.Errorf("apply %s: %w", f.file(), err)
		}
		if first == nil {
			first = there
		}
		if e := f.changedSince(first, there); e != nil {
			return fmt.Errorf("apply %s: another client has changed %s, so nothing of the file was written; look at the change (coe-bridge get --documents), and apply again", f.file(), entrykind.Title(e))
		}
		err = a.write(ctx, at, match, f, there)
		if !isStale(err) {
			return f.located(err)
		}
	}
	return fmt.Errorf("apply %s: nothing was written, because other clients keep writing; apply again", f.file())
}

// isStale reports whether a write failed because its base has changed.
func isStale(err error) bool {
	refused, ok := errors.AsType[*client.Refusal](err)
	if !ok {
		return errors.Is(err, client.ErrStale)
	}
	for _, wrong := range refused.Edits {
		for _, e := range wrong {
			if e.Tag == "data-exists" {
				return true
			}
		}
	}
	return false
}

// write writes the entries that differ from the datastore.
func (a *applier) write(ctx context.Context, at, match string, f entries, there map[string]*document.Entry) error {
	var edits []client.Edit
	results := make([]string, len(f))
	replaces := false
	for i, e := range f {
		old := there[e.Target()]
		change := client.Edit{ID: fmt.Sprint(i), Target: below(at, e.Target()), Value: e.Body()}
		switch {
		case e.Same(old):
			results[i] = "unchanged"
			continue
		case e.Key == nil: // its other content stays
			change.Operation, results[i] = "merge", "configured"
		case old == nil:
			change.Operation, results[i] = "create", "created"
		default:
			change.Operation, results[i] = "replace", "configured"
		}
		replaces = replaces || change.Operation != "create"
		edits = append(edits, change)
	}
	if !replaces {
		match = "" // create fails anyway if the entry exists
	}
	if len(edits) > 0 {
		if err := a.client.Patch(ctx, at, match, a.how == dryRunServer, edits); err != nil {
			return err
		}
	}
	for i, e := range f {
		a.results.add(e, results[i], a.how)
	}
	return nil
}

// below is a target relative to another one.
func below(at, target string) string {
	if rest := strings.TrimPrefix(target, at); rest != "" {
		return rest
	}
	return "/"
}

// result is the result for an entry.
type result struct {
	Kind   string `json:"kind"`
	Key    string `json:"key,omitempty"`
	Name   string `json:"name,omitempty"`
	Result string `json:"result"`
	DryRun string `json:"dry-run,omitempty"`
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"`
}

// reporter prints results: a line for each at once, or all at the end.
type reporter struct {
	out output.Format
	w   io.Writer
	all []result
}

func (r *reporter) add(e *document.Entry, what string, how dryRun) {
	if r.out == "table" {
		fmt.Fprintln(r.w, output.OneLine(entrykind.Title(e))+" "+what+how.suffix())
		return
	}
	one := result{Kind: entrykind.Name(e), Key: strings.Join(e.Key, ","), Name: entrykind.Label(e), Result: what, File: e.File, Line: e.Line}
	if how != dryRunNone {
		one.DryRun = string(how)
	}
	r.all = append(r.all, one)
}

func (r *reporter) end() error {
	if r.out == "table" {
		return nil
	}
	return r.out.Print(r.w, output.Table{}, output.Listed(r.all))
}
