package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// nameColumns are the columns of tables by which a row is called.
var nameColumns = []string{"NAME", "UID", "KEY", "INTERFACE", "NETWORK"}

// identity is how an element of a list of coe-bridge get is called in JSON.
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

// calledBy tells whether a name is one of a thing's, or its NAMESPACE/NAME.
func calledBy(name, namespace, bare string, others ...string) bool {
	return name == bare || slices.Contains(others, name) || namespace != "" && name == namespace+"/"+bare
}

// only is a resource of which just those that names call are shown.
func (r resource) only(names []string) resource {
	if len(names) == 0 {
		return r
	}
	read := r.read
	r.read = func(ctx context.Context, c *client) (table, any, error) {
		t, data, err := read(ctx, c)
		if err != nil {
			return t, nil, err
		}
		chosen, err := chosenData(data, names)
		if err != nil {
			return t, nil, err
		}
		for _, name := range names {
			if !slices.ContainsFunc(t.rows, func(row []string) bool { return t.calls(row, name) }) {
				return t, nil, fmt.Errorf("get %s %s: not found; coe-bridge get %s lists those there are", r.name, name, r.name)
			}
		}
		t.rows = slices.DeleteFunc(t.rows, func(row []string) bool {
			return !slices.ContainsFunc(names, func(name string) bool { return t.calls(row, name) })
		})
		return t, chosen, nil
	}
	return r
}

// calls tells whether a row is called by a name.
func (t table) calls(row []string, name string) bool {
	var namespace, bare string
	var others []string
	for i, column := range t.columns {
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

// chosenData are the elements of a list that names call, as they would be written.
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

// shownEntry is a row of coe-bridge get of what has no command of its own.
type shownEntry struct {
	Namespace string          `json:"namespace,omitempty"`
	Name      string          `json:"name,omitempty"`
	UID       string          `json:"uid"`
	Address   string          `json:"address,omitempty"`
	Entry     json.RawMessage `json:"entry"`
}

// columns are those of a kind's table.
func (k kind) columns() []string {
	switch k.name {
	case "nodes":
		return []string{"NAME", "UID", "ADDRESS"}
	case "endpoints":
		return []string{"NAMESPACE", "NAME", "UID"}
	}
	return []string{"NAME", "UID"}
}

// row is an entry in a table of the kind.
func (k kind) row(e shownEntry) []string {
	cells := map[string]string{"NAMESPACE": e.Namespace, "NAME": e.Name, "UID": e.UID, "ADDRESS": e.Address}
	var row []string
	for _, column := range k.columns() {
		row = append(row, cells[column])
	}
	return row
}

// readKind reads the entries of a kind as clients, or Kubernetes, wrote them, by name.
func readKind(k kind) func(context.Context, *client) (table, any, error) {
	return func(ctx context.Context, c *client) (table, any, error) {
		known, err := loadCatalog()
		if err != nil {
			return table{}, nil, err
		}
		all, err := (&editor{c, known}).entries(ctx, "/"+k.top)
		if err != nil {
			return table{}, nil, err
		}
		t := table{columns: k.columns(), empty: "no " + k.name + "; coe-bridge apply -f FILE makes some"}
		shown := []shownEntry{}
		for _, e := range all {
			if !k.isOf(e) {
				continue
			}
			one := shownEntry{Name: label(e), UID: strings.Join(e.Key, ","), Address: e.Leaf("internal-ip-address"), Entry: e.Content()}
			if ns, name, named := strings.Cut(one.Name, "/"); named {
				one.Namespace, one.Name = ns, name
			}
			shown = append(shown, one)
		}
		slices.SortFunc(shown, func(a, b shownEntry) int {
			return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
		})
		for _, one := range shown {
			t.rows = append(t.rows, k.row(one))
		}
		return t, shown, nil
	}
}

// showDocuments prints the entries of a kind that names call, or all, as apply takes
// them.
func showDocuments(ctx context.Context, w io.Writer, c *editor, k kind, names []string, out output) error {
	all, err := c.entries(ctx, "/"+k.top)
	if err == nil && len(names) > 0 {
		var missing []string
		if all, missing, err = c.find(ctx, k, names); len(missing) > 0 {
			err = fmt.Errorf("get %s %s: not found; coe-bridge get %s lists those there are", k.name, strings.Join(missing, ", "), k.name)
		}
	}
	if err != nil {
		return err
	}
	for i, e := range all {
		text := append(e.Body(), '\n')
		if out != "json" {
			if text, err = toYAML(text); err != nil {
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
