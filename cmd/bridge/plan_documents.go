package bridge

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/coe/kube/manifest"
	"github.com/coe-bridge/coe-bridge/coe/northbound"
	"github.com/coe-bridge/coe-bridge/yang"
)

// Document is what a bridge is told, and what to call it in errors: Kubernetes
// manifests, or a piece of COE JSON. That holds top containers ({"pod:coe": …})
// or what would be POSTed to one ({"pod:pods": […]}).
type Document struct {
	Name string
	Text []byte
}

// said is what documents say.
type said struct {
	entries   northbound.Batch
	manifests manifest.Set
}

func readDocuments(documents []Document) (*said, error) {
	schema, err := yang.Load()
	if err != nil {
		return nil, err
	}
	all := &said{entries: northbound.Batch{Revision: 1, Snapshot: true}}
	for _, d := range documents {
		if isManifest(d.Text) {
			if err := all.manifests.Read(d.Name, bytes.NewReader(d.Text)); err != nil {
				return nil, fmt.Errorf("plan %w", err)
			}
			continue
		}
		entries, err := readDocument(schema, d.Text)
		if err != nil {
			return nil, fmt.Errorf("plan %s: %w", d.Name, err)
		}
		all.entries.Entries = append(all.entries.Entries, entries...)
	}
	return all, nil
}

// isManifest tells Kubernetes manifests, which are YAML or objects that say their
// kind, from COE JSON.
func isManifest(text []byte) bool {
	text = bytes.TrimSpace(text)
	if len(text) == 0 || text[0] == '[' {
		return false
	}
	if text[0] != '{' {
		return true
	}
	var first map[string]json.RawMessage
	_ = json.NewDecoder(bytes.NewReader(text)).Decode(&first) // whoever reads it says what is wrong
	return first["kind"] != nil || first["apiVersion"] != nil
}

// readDocument reads and checks the entries of one document.
func readDocument(schema *yang.Schema, document []byte) ([]northbound.Entry, error) {
	tops, err := decodeDocument(schema, document)
	if err != nil {
		return nil, err
	}
	var entries []northbound.Entry
	for _, top := range tops {
		if err := schema.Validate(top, "", nil); err != nil {
			return nil, err
		}
		for _, d := range entriesOf(top) {
			var raw bytes.Buffer
			yang.EncodeObject(&raw, d)
			e := northbound.Entry{List: listName(d.Node), Key: northbound.JoinKey(d.Key()...), Raw: raw.Bytes()}
			if err := northbound.Check(e.List, leaves{d}); err != nil {
				return nil, fmt.Errorf("%s %s: %w", e.List, e.Key, err)
			}
			entries = append(entries, e)
		}
	}
	return entries, nil
}

// entriesOf are the entries of the lists in a container, or in a container in it.
func entriesOf(container *yang.Data) (entries []*yang.Data) {
	for _, d := range container.Children {
		switch d.Node.Kind {
		case yang.List:
			entries = append(entries, d)
		case yang.Container:
			entries = append(entries, entriesOf(d)...)
		}
	}
	return entries
}

// decodeDocument reads a document in either of its two shapes as top containers.
func decodeDocument(schema *yang.Schema, document []byte) ([]*yang.Data, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(document, &members); err != nil {
		return nil, fmt.Errorf("want one JSON object like {\"pod:pods\": […]}: %w", err)
	}
	for name := range members {
		if parent := parentOf(schema, name); parent != nil {
			children, err := schema.DecodeJSON(document, parent, "/"+listName(parent), yang.Lenient)
			return []*yang.Data{{Node: parent, Children: children}}, err
		}
	}
	tops := topNames(schema)
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if !slices.ContainsFunc(tops, func(top string) bool { return name == top || strings.HasSuffix(top, ":"+name) }) {
			return nil, fmt.Errorf("%q is nothing that a bridge is told: want %s, or one of the lists in them", name, strings.Join(tops, ", "))
		}
	}
	return schema.DecodeJSON(document, nil, "", yang.Lenient)
}

// topNames are the top containers that a plan reads.
func topNames(schema *yang.Schema) []string {
	var names []string
	for _, m := range schema.Modules {
		for _, top := range m.Top {
			if slices.Contains(readable, m.Name) {
				names = append(names, listName(top))
			}
		}
	}
	return names
}

// parentOf is the top container that has a list of this name ("pod:pods" or
// "pods"), or nil where the name is a top container's own or nobody's.
func parentOf(schema *yang.Schema, name string) *yang.Node {
	module, local, prefixed := strings.Cut(name, ":")
	if !prefixed {
		module, local = "", name
	}
	for _, m := range schema.Modules {
		if module != "" && m.Name != module || !slices.Contains(readable, m.Name) {
			continue
		}
		for _, top := range m.Top {
			if child := top.Child(m.Name, local); child != nil && top.Name != local {
				return top
			}
		}
	}
	return nil
}

// readable are the modules whose containers a plan reads.
var readable = []string{"pod", "service", "k8s-node", "dhcp_allocation_pool", "k8s", "ietf-access-control-list"}
