package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coe-bridge/coe-bridge/restconf/document"
)

// dryRun tells how far apply and delete go.
type dryRun string

const (
	dryRunNone   dryRun = "none"
	dryRunClient dryRun = "client"
	dryRunServer dryRun = "server"
)

func (d *dryRun) register(cmd *cobra.Command) {
	*d = dryRunNone
	choice[dryRun]{d, []dryRun{dryRunNone, dryRunClient, dryRunServer}}.register(cmd, "dry-run", "",
		"none, client (only read the files; ask no bridge) or server (have the bridge judge them and write nothing)")
}

// suffix is said after what would be done.
func (d dryRun) suffix() string {
	if d == dryRunNone {
		return ""
	}
	return " (" + string(d) + " dry run)"
}

func newApply() *cobra.Command {
	var (
		flags clientFlags
		files []string
		how   dryRun
		out   output
	)
	cmd := &cobra.Command{
		Use:   "apply -f FILE",
		Short: "Make entries of a bridge what files say",
		Long: `apply reads YAML or JSON and makes each entry in it (a pod, a service, a node, a pool)
exactly what the file says: it is created, replaced, or left as it is. What files don't
speak of stays.

A document holds data by RFC 7951, as RESTCONF takes and shows it: a top container
("pod:coe": {"pods": …}) or a list in one ("pod:pods": …). A file may have several,
with lines of --- between them. What get --documents prints can be applied again.

A file is one transaction: all of it is written, or nothing. Files go one after the
other; of a folder those that end in .yaml, .yml or .json, by name. When somebody else
changes one of the entries at the same moment, nothing of the file is written.

What is wrong is said with its file and line, and the exit code is 1.`,
		Example: `  coe-bridge apply -f pods.yaml
  coe-bridge apply -f network/ --dry-run server
  coe-bridge get pods shop/web --documents > web.yaml # change it, and
  coe-bridge apply -f web.yaml
  echo '{"pod:pods": [{"uid": "8f2a6d5e-0000-4000-8000-000000000001", "name": "web"}]}' | coe-bridge apply -f -`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := flags.editor()
			if err != nil {
				return err
			}
			read, err := c.catalog.readEntries(cmd.InOrStdin(), files)
			if err != nil {
				return err
			}
			a := &applier{client: c, how: how, results: reporter{out: out, w: cmd.OutOrStdout()}, notes: cmd.ErrOrStderr()}
			return errors.Join(a.applyAll(cmd.Context(), read), a.results.end())
		},
	}
	registerFiles(cmd, &files)
	how.register(cmd)
	out.register(cmd)
	flags.register(cmd)
	return cmd
}

// attempts are how often apply reads and writes again when somebody else has written.
const attempts = 5

// applier makes entries what files say.
type applier struct {
	client  *editor
	how     dryRun
	results reporter
	notes   io.Writer
	// cautioned tells that what is not enforced was named.
	cautioned bool
}

// applyAll applies file after file, and returns all that was wrong.
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
		if err == nil {
			a.caution(f)
		}
		wrong = append(wrong, err)
	}
	return errors.Join(wrong...)
}

// caution tells once that nothing is done with policies.
func (a *applier) caution(f entries) {
	if !a.cautioned && slices.ContainsFunc(f, isPolicy) {
		fmt.Fprintln(a.notes, "coe-bridge: policies: stored, and not enforced: this version has no network policies")
		a.cautioned = true
	}
}

// judge looks at a file and asks nobody.
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

// apply makes all entries of a file what it says, or none.
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
			return fmt.Errorf("apply %s: somebody else has changed %s meanwhile, and nothing of the file was written: look at it (coe-bridge get --documents), and apply again", f.file(), title(e))
		}
		err = a.write(ctx, at, match, f, there)
		if !isStale(err) {
			return f.located(err)
		}
	}
	return fmt.Errorf("apply %s: nothing of it was written: others write all the time; apply again", f.file())
}

// isStale tells whether what was written is based on is no more.
func isStale(err error) bool {
	refused, ok := errors.AsType[*refusal](err)
	if !ok {
		return errors.Is(err, errStale)
	}
	for _, wrong := range refused.edits {
		for _, e := range wrong {
			if e.Tag == "data-exists" {
				return true
			}
		}
	}
	return false
}

// write writes what differs from what is there.
func (a *applier) write(ctx context.Context, at, match string, f entries, there map[string]*document.Entry) error {
	var edits []edit
	results := make([]string, len(f))
	replaces := false
	for i, e := range f {
		old := there[e.Target()]
		change := edit{ID: fmt.Sprint(i), Target: below(at, e.Target()), Value: e.Body()}
		switch {
		case e.Same(old):
			results[i] = "unchanged"
			continue
		case e.Key == nil: // what is in it beside its own stays
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
		match = "" // that what is created is not there is seen all the same
	}
	if len(edits) > 0 {
		if err := a.client.patch(ctx, at, match, a.how == dryRunServer, edits); err != nil {
			return err
		}
	}
	for i, e := range f {
		a.results.add(e, results[i], a.how)
	}
	return nil
}

// below is a target as it is called below another one.
func below(at, target string) string {
	if rest := strings.TrimPrefix(target, at); rest != "" {
		return rest
	}
	return "/"
}

// result is what became of an entry.
type result struct {
	Kind   string `json:"kind"`
	Key    string `json:"key,omitempty"`
	Name   string `json:"name,omitempty"`
	Result string `json:"result"`
	DryRun string `json:"dry-run,omitempty"`
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"`
}

// reporter tells what became of entries: a line for each at once, or all at the end.
type reporter struct {
	out output
	w   io.Writer
	all []result
}

func (r *reporter) add(e *document.Entry, what string, how dryRun) {
	if r.out == "table" {
		fmt.Fprintln(r.w, oneLine(title(e))+" "+what+how.suffix())
		return
	}
	one := result{Kind: kindOf(e), Key: strings.Join(e.Key, ","), Name: label(e), Result: what, File: e.File, Line: e.Line}
	if how != dryRunNone {
		one.DryRun = string(how)
	}
	r.all = append(r.all, one)
}

func (r *reporter) end() error {
	if r.out == "table" {
		return nil
	}
	return r.out.print(r.w, table{}, listed(r.all))
}
