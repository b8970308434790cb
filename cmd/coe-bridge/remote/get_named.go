package remote

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/entrykind"
	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/output"
	"github.com/coe-bridge/coe-bridge/restconf/client"
)

// nameColumns are the columns that name a row.
var nameColumns = []string{"NAME", "UID", "KEY", "INTERFACE", "NETWORK", "NODE ADDRESS"}

// identity has the names of an element of a list in JSON.
type identity struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	Key       string `json:"key"`
	Interface string `json:"interface-name"`
	Network   string `json:"network-id"`
	ELAN      string `json:"elan-instance-name"`
	VPN       string `json:"vpn-instance-name"`
}

// calledBy reports whether name is one of the given names, or NAMESPACE/NAME.
func calledBy(name, namespace, bare string, others ...string) bool {
	return name == bare || slices.Contains(others, name) || namespace != "" && name == namespace+"/"+bare
}

// only restricts a resource to the rows with these names. The command is that which shows them.
func (r resource) only(command string, names []string) resource {
	if len(names) == 0 {
		return r
	}
	read := r.read
	r.read = func(ctx context.Context, c *client.Client) (output.Table, any, error) {
		t, data, err := read(ctx, c)
		if err != nil {
			return t, nil, err
		}
		chosen, err := chosenData(data, names)
		if err != nil {
			return t, nil, err
		}
		for _, name := range names {
			if !slices.ContainsFunc(t.Rows, func(row []string) bool { return rowCalls(t, row, name) }) {
				return t, nil, fmt.Errorf("%s %s: not found; coe-bridge %s lists all", command, name, command)
			}
		}
		t.Rows = slices.DeleteFunc(t.Rows, func(row []string) bool {
			return !slices.ContainsFunc(names, func(name string) bool { return rowCalls(t, row, name) })
		})
		return t, chosen, nil
	}
	return r
}

// rowCalls reports whether a row has a name.
func rowCalls(t output.Table, row []string, name string) bool {
	var namespace, bare string
	var others []string
	for i, column := range t.Columns {
		switch {
		case column == "NAMESPACE":
			namespace = row[i]
		case column == "NAME":
			bare = row[i]
		case slices.Contains(nameColumns, column):
			others = append(others, row[i])
		}
	}
	return calledBy(name, namespace, bare, others...)
}

// chosenData returns the elements of a list with these names, as JSON.
func chosenData(data any, names []string) ([]json.RawMessage, error) {
	text, err := json.Marshal(data)
	if err != nil {
		return nil, fmt.Errorf("write JSON: %w", err)
	}
	var all []json.RawMessage
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("choose from a list: %w", err)
	}
	chosen := []json.RawMessage{}
	for _, one := range all {
		var id identity
		if err := json.Unmarshal(one, &id); err != nil {
			return nil, fmt.Errorf("choose from a list: %w", err)
		}
		if slices.ContainsFunc(names, func(name string) bool {
			return calledBy(name, id.Namespace, id.Name, id.UID, id.Key, id.Interface, id.Network, id.ELAN, id.VPN)
		}) {
			chosen = append(chosen, one)
		}
	}
	return chosen, nil
}

// shownEntry is a row of a kind without columns of its own.
type shownEntry struct {
	Namespace string          `json:"namespace,omitempty"`
	Name      string          `json:"name,omitempty"`
	UID       string          `json:"uid"`
	Address   string          `json:"address,omitempty"`
	Entry     json.RawMessage `json:"entry"`
}

// columnsOf returns the columns of a kind's table.
func columnsOf(k entrykind.Kind) []string {
	switch k.Name {
	case "nodes":
		return []string{"NAME", "UID", "ADDRESS"}
	case "endpoints":
		return []string{"NAMESPACE", "NAME", "UID"}
	}
	return []string{"NAME", "UID"}
}

// rowOf returns the row of an entry.
func rowOf(k entrykind.Kind, e shownEntry) []string {
	cells := map[string]string{"NAMESPACE": e.Namespace, "NAME": e.Name, "UID": e.UID, "ADDRESS": e.Address}
	var row []string
	for _, column := range columnsOf(k) {
		row = append(row, cells[column])
	}
	return row
}

// readKind reads the entries of a kind as clients or Kubernetes wrote them.
func readKind(k entrykind.Kind) func(context.Context, *client.Client) (output.Table, any, error) {
	return func(ctx context.Context, c *client.Client) (output.Table, any, error) {
		shown, err := entriesOf(ctx, c, k)
		if err != nil {
			return output.Table{}, nil, err
		}
		t := output.Table{Columns: columnsOf(k), Empty: "no " + k.Name + "; create some with coe-bridge apply -f FILE"}
		for _, one := range shown {
			t.Rows = append(t.Rows, rowOf(k, one))
		}
		return t, shown, nil
	}
}

// entriesOf reads the entries of a kind as clients or Kubernetes wrote them, sorted by name.
func entriesOf(ctx context.Context, c *client.Client, k entrykind.Kind) ([]shownEntry, error) {
	known, err := entrykind.Load()
	if err != nil {
		return nil, err
	}
	all, err := (&editor{c, known}).entries(ctx, "/"+k.Top)
	if err != nil {
		return nil, err
	}
	shown := []shownEntry{}
	for _, e := range all {
		if !k.Has(e) {
			continue
		}
		one := shownEntry{Name: entrykind.Label(e), UID: strings.Join(e.Key, ","), Address: e.Leaf("internal-ip-address"), Entry: e.Content()}
		if ns, name, named := strings.Cut(one.Name, "/"); named {
			one.Namespace, one.Name = ns, name
		}
		shown = append(shown, one)
	}
	slices.SortFunc(shown, func(a, b shownEntry) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	return shown, nil
}

// showDocuments prints the entries of a kind, all or by name, as files for apply.
func showDocuments(ctx context.Context, w io.Writer, c *editor, k entrykind.Kind, names []string, out output.Format) error {
	all, err := c.entries(ctx, "/"+k.Top)
	if err == nil && len(names) > 0 {
		var missing []string
		if all, missing, err = c.find(ctx, k, names); len(missing) > 0 {
			err = fmt.Errorf("get %s %s: not found; coe-bridge get %s lists all", k.Name, strings.Join(missing, ", "), k.Name)
		}
	}
	if err != nil {
		return err
	}
	for i, e := range all {
		text := append(e.Body(), '\n')
		if out != "json" {
			if text, err = output.YAML(text); err != nil {
				return err
			}
			if i > 0 {
				text = append([]byte("---\n"), text...)
			}
		}
		if _, err := w.Write(text); err != nil {
			return err
		}
	}
	return nil
}
