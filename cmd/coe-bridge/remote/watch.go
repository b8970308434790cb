package remote

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/entrykind"
	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/flags"
	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/output"
	"github.com/coe-bridge/coe-bridge/restconf/client"
	"github.com/coe-bridge/coe-bridge/restconf/document"
)

// How long to wait before a broken stream is followed again.
const (
	firstPause = 200 * time.Millisecond
	lastPause  = 5 * time.Second
)

func newWatch() *cobra.Command {
	var (
		bridge flags.Bridge
		out    output.Format
	)
	cmd := &cobra.Command{
		Use:   "watch KIND [NAME...]",
		Short: "Show each change of RESTCONF clients",
		Long: `watch shows the entries of a kind, and then each change at once, until it is interrupted.
It shows what RESTCONF clients write: ` + entrykind.List() + `.
Use get -w for the mapped objects, and for objects of Kubernetes.

A broken connection is restored. Changes that were made in between are shown then, each
once. -o json writes a line of JSON for each change.`,
		Example: `  coe-bridge watch pods
  coe-bridge watch pods shop/web
  coe-bridge watch pools -o json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fmt.Errorf("watch: name a kind: %s", entrykind.List())
			}
			_, err := entrykind.Named(args[0])
			if err != nil && isResource(args[0]) {
				return fmt.Errorf("watch %[1]s: clients do not write it; use coe-bridge get %[1]s -w", args[0])
			}
			return err
		},
		ValidArgsFunction: completeEntries,
		RunE: func(cmd *cobra.Command, args []string) error {
			k, err := entrykind.Named(args[0])
			if err != nil {
				return err
			}
			c, err := bridge.Streaming()
			if err != nil {
				return err
			}
			known, err := entrykind.Load()
			if err != nil {
				return err
			}
			w := &watcher{
				client: c, catalog: known, kind: k, names: args[1:], out: out,
				w: cmd.OutOrStdout(), notes: cmd.ErrOrStderr(), told: map[string]told{},
			}
			return w.run(cmd.Context())
		},
	}
	out.RegisterAs(cmd, "table", "json")
	bridge.Register(cmd)
	return cmd
}

// watcher shows how the entries of a kind change.
type watcher struct {
	client  *client.Client
	catalog *entrykind.Catalog
	kind    entrykind.Kind
	names   []string // empty: all
	out     output.Format
	w       io.Writer
	notes   io.Writer

	last string          // the ID of the last event
	told map[string]told // what was shown of each entry, by target
	// again has the targets of a snapshot that is being read; nil if none is.
	again map[string]bool
	began bool
}

// told has the parts of an entry that were shown.
type told struct {
	key, name string
	sum       uint64
}

// run follows until ctx ends.
func (w *watcher) run(ctx context.Context) error {
	stream := "changes=" + url.PathEscape(w.kind.Top)
	pause := firstPause
	for {
		followed := false
		err := w.client.Follow(ctx, stream, w.last, func(id string, data []byte) error {
			if pause != firstPause && !followed {
				fmt.Fprintln(w.notes, "coe-bridge: connected again")
			}
			followed, pause = true, firstPause
			return w.hear(id, data)
		})
		if ctx.Err() != nil {
			return nil
		}
		if _, lasts := errors.AsType[client.LastingError](err); lasts || !w.began {
			return err
		}
		if pause == firstPause {
			fmt.Fprintln(w.notes, "coe-bridge: "+err.Error()+"; trying again")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		pause = min(2*pause, lastPause)
	}
}

// notification is an event of coe-changes.
type notification struct {
	Notification struct {
		Time     string           `json:"eventTime"`
		Changed  *entryChanged    `json:"coe-changes:entry-changed"`
		Begin    *json.RawMessage `json:"coe-changes:snapshot-begin"`
		Complete *json.RawMessage `json:"coe-changes:snapshot-complete"`
	} `json:"ietf-restconf:notification"`
}

type entryChanged struct {
	Operation string          `json:"operation"`
	Target    string          `json:"target"`
	Value     json.RawMessage `json:"value"`
}

// hear reads one event.
func (w *watcher) hear(id string, data []byte) error {
	var n notification
	if data != nil {
		if err := json.Unmarshal(data, &n); err != nil {
			return client.LastingError{Err: fmt.Errorf("read an event: %w; is it a coe-bridge? (--server)", err)}
		}
	}
	var err error
	switch event := n.Notification; {
	case event.Begin != nil:
		w.begin()
		w.again = map[string]bool{}
	case event.Complete != nil:
		err = w.complete(event.Time)
	case event.Changed != nil:
		err = w.changed(event.Time, *event.Changed)
	}
	w.last = cmp.Or(id, w.last)
	return err
}

// begin prints the header.
func (w *watcher) begin() {
	if !w.began && w.out == "table" {
		fmt.Fprintf(w.w, lineFormat, "TIME", "EVENT", "KEY", "NAME")
	}
	w.began = true
}

// complete ends a snapshot: entries that are not in it were deleted.
func (w *watcher) complete(at string) error {
	var wrong []error
	for target := range w.told {
		if w.again != nil && !w.again[target] {
			wrong = append(wrong, w.gone(at, target))
		}
	}
	w.again = nil
	return errors.Join(wrong...)
}

func (w *watcher) changed(at string, c entryChanged) error {
	if w.again != nil {
		w.again[c.Target] = true
	}
	if c.Operation == "deleted" {
		return w.gone(at, c.Target)
	}
	read, err := w.catalog.Reader().Read(document.File{Name: "an event", Text: c.Value})
	if err != nil {
		return client.LastingError{Err: err}
	}
	for _, e := range read {
		if w.kind.Has(e) && (len(w.names) == 0 || anyCalls(e, w.names)) {
			if err := w.put(at, c, e); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *watcher) put(at string, c entryChanged, e *document.Entry) error {
	sum := fnv.New64a()
	_, _ = sum.Write(c.Value)
	now := told{strings.Join(e.Key, ","), entrykind.Label(e), sum.Sum64()}
	before, known := w.told[c.Target]
	w.told[c.Target] = now
	switch {
	case !known:
		return w.show(at, "ADDED", now, c.Value)
	case before != now:
		return w.show(at, "MODIFIED", now, c.Value)
	}
	return nil
}

func (w *watcher) gone(at, target string) error {
	before, known := w.told[target]
	if !known {
		return nil
	}
	delete(w.told, target)
	return w.show(at, "DELETED", before, nil)
}

const lineFormat = "%-12s  %-8s  %-36s  %s\n"

// watchedChange is a line of coe-bridge watch -o json.
type watchedChange struct {
	Time  string          `json:"time"`
	Event string          `json:"event"`
	Kind  string          `json:"kind"`
	Key   string          `json:"key"`
	Name  string          `json:"name,omitempty"`
	Value json.RawMessage `json:"value,omitempty"`
}

func (w *watcher) show(at, event string, what told, value json.RawMessage) error {
	if w.out == "json" {
		return json.NewEncoder(w.w).Encode(watchedChange{at, event, w.kind.Name, what.key, what.name, value})
	}
	if when, err := time.Parse(time.RFC3339Nano, at); err == nil {
		at = when.Local().Format("15:04:05.000")
	}
	_, err := fmt.Fprintf(w.w, lineFormat, output.OneLine(at), event, output.OneLine(what.key), cmp.Or(output.OneLine(what.name), "-"))
	return err
}
