package plan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/kube/manifest"
	"github.com/coe-bridge/coe-bridge/coe/northbound"
	"github.com/coe-bridge/coe-bridge/coe/northbound/entry"
	"github.com/coe-bridge/coe-bridge/yang"
)

// Document has Kubernetes manifests or COE JSON. COE JSON is top containers ({"pod:coe": …}),
// or the body of a POST to one ({"pod:pods": […]}).
type Document struct {
	Name string // for errors
	Text []byte
}

// input is the content of all documents.
type input struct {
	entries   northbound.Batch
	manifests manifest.Set
}

func readDocuments(documents []Document) (*input, error) {
	schema, err := yang.Load()
	if err != nil {
		return nil, err
	}
	all := &input{}
	for _, d := range documents {
		if IsManifest(d.Text) {
			if err := all.manifests.Read(d.Name, bytes.NewReader(d.Text)); err != nil {
				return nil, fmt.Errorf("plan %w", err)
			}
			continue
		}
		entries, err := readDocument(schema, d.Text)
		if err != nil {
			return nil, fmt.Errorf("plan %s: %w", d.Name, err)
		}
		for _, e := range of(entries, northbound.Gateways) {
			if slices.ContainsFunc(all.entries.Entries, func(o northbound.Entry) bool { return o.List == e.List && o.Key == e.Key }) {
				return nil, fmt.Errorf("plan %s: gateway of node %s is given twice", d.Name, e.Key)
			}
		}
		all.entries.Entries = append(all.entries.Entries, entries...)
	}
	if err := northbound.CheckGateways(of(all.entries.Entries, northbound.Gateways)); err != nil {
		return nil, fmt.Errorf("plan %w", err)
	}
	all.manifests.AccessLists, err = accessLists(all.entries.Entries)
	return all, err
}

// of returns the entries of a list.
func of(entries []northbound.Entry, list string) (all []northbound.Entry) {
	for _, e := range entries {
		if e.List == list {
			all = append(all, e)
		}
	}
	return all
}

// AccessLists reads a document of COE JSON for a command that needs its access lists alone.
func AccessLists(d Document) (lists []*coe.PolicySpec, err error) {
	schema, err := yang.Load()
	if err != nil {
		return nil, err
	}
	entries, err := readDocument(schema, d.Text)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", d.Name, err)
	}
	for _, e := range entries {
		if e.List != northbound.AccessLists {
			return nil, fmt.Errorf("read %s: %s %s: only access lists are read in this form: use Kubernetes manifests for the rest", d.Name, e.List, e.Key)
		}
	}
	return accessLists(entries)
}

// accessLists returns the access lists among entries.
func accessLists(entries []northbound.Entry) (lists []*coe.PolicySpec, err error) {
	for _, e := range of(entries, northbound.AccessLists) {
		p, err := northbound.AccessList(e.Raw)
		if err != nil {
			return nil, err
		}
		lists = append(lists, p)
	}
	return lists, nil
}

// IsManifest reports whether a text is Kubernetes manifests, not COE JSON. Manifests are
// YAML, or objects with a kind. An empty text is YAML.
func IsManifest(text []byte) bool {
	text = bytes.TrimSpace(text)
	if bytes.HasPrefix(text, []byte("[")) {
		return false
	}
	if !bytes.HasPrefix(text, []byte("{")) {
		return true
	}
	var first map[string]json.RawMessage
	_ = json.NewDecoder(bytes.NewReader(text)).Decode(&first) // its reader reports the error
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
			e := entry.FromData(d)
			if err := northbound.Check(e.List, entry.Leaves{Data: d}); err != nil {
				return nil, fmt.Errorf("%s %s: %w", e.List, e.Key, err)
			}
			entries = append(entries, e)
		}
	}
	return entries, nil
}

// entriesOf returns the entries of the lists in a container, and in the containers in it.
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
			children, err := schema.DecodeJSON(document, parent, "/"+entry.ListName(parent), yang.Lenient)
			return []*yang.Data{{Node: parent, Children: children}}, err
		}
	}
	tops := topNames(schema)
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if !slices.ContainsFunc(tops, func(top string) bool { return name == top || strings.HasSuffix(top, ":"+name) }) {
			return nil, fmt.Errorf("%q is not the name of input for a bridge: want %s, or one of the lists in them", name, strings.Join(tops, ", "))
		}
	}
	return schema.DecodeJSON(document, nil, "", yang.Lenient)
}

// topNames lists the top containers that a plan reads.
func topNames(schema *yang.Schema) []string {
	var names []string
	for _, m := range schema.Modules {
		for _, top := range m.Top {
			if top.Config && slices.Contains(readable, m.Name) {
				names = append(names, entry.ListName(top))
			}
		}
	}
	return names
}

// parentOf returns the top container that has a list of this name ("pod:pods" or "pods").
// It is nil for the name of a top container, and for an unknown name.
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
			if child := top.Child(m.Name, local); top.Config && child != nil && top.Name != local {
				return top
			}
		}
	}
	return nil
}

// readable are the modules whose containers a plan reads.
var readable = []string{"pod", "service", "k8s-node", "dhcp_allocation_pool", "k8s", "ietf-access-control-list", "coe-gateways", "coe-agent"}
