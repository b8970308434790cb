// Package entrykind has the kinds of entries that RESTCONF clients write: their names for
// commands, and their lists in the YANG modules. It also names single entries for people,
// and reads documents of entries. The kinds of the Netvirt model are in mapping/netvirt.
package entrykind

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/restconf/document"
	"github.com/coe-bridge/coe-bridge/yang"
)

// Kind is a kind of entries that clients write.
type Kind struct {
	Name, Singular string
	Top, list      string // "module:container", and the list's name in it
	Short          string
}

// All returns the kinds.
func All() []Kind {
	return []Kind{
		{"pods", "pod", "pod:coe", "pods", "Pods"},
		{"services", "service", "service:service-information", "services", "Services"},
		{"endpoints", "endpoint", "service:endpoints-info", "endpoints", "Endpoints of services"},
		{"nodes", "node", "k8s-node:k8s-nodes-info", "k8s-nodes", "Nodes"},
		{"clusters", "cluster", "k8s-cluster:k8s-clusters-info", "k8s-clusters", "Clusters"},
		{"policies", "policy", "k8s:k8s", "network-policy", "Network policies"},
		{"pools", "pool", "dhcp_allocation_pool:dhcp_allocation_pool", "network", "DHCP pools, by network"},
		{"gateways", "gateway", "coe-gateways:gateways", "gateway", "Gateways, by node"},
	}
}

// Named returns the kind with a name, in the singular or plural.
func Named(name string) (Kind, error) {
	for _, k := range All() {
		if name == k.Name || name == k.Singular {
			return k, nil
		}
	}
	return Kind{}, fmt.Errorf("%q is not a kind that clients write: want one of %s", name, List())
}

// List returns the names of all kinds, for a sentence.
func List() string { return strings.Join(kindNames(), ", ") }

func kindNames() []string {
	var names []string
	for _, k := range All() {
		names = append(names, k.Name)
	}
	return names
}

// Catalog reads documents of all kinds.
type Catalog struct {
	schema *yang.Schema
	tops   []*yang.Node
}

// Load loads the YANG modules and returns their Catalog.
func Load() (*Catalog, error) {
	schema, err := yang.Load()
	if err != nil {
		return nil, err
	}
	c := &Catalog{schema: schema}
	for _, k := range All() {
		module, name, _ := strings.Cut(k.Top, ":")
		c.tops = append(c.tops, schema.Module(module).Child(name))
	}
	return c, nil
}

// Reader returns a reader of documents.
func (c *Catalog) Reader() *document.Reader { return document.NewReader(c.schema, c.tops) }

// Has reports whether an entry is of the kind.
func (k Kind) Has(e *document.Entry) bool {
	return e.Key != nil && e.Node().Name == k.list && TopName(e) == k.Top
}

// TopName returns the name of the top container of an entry: "module:container".
func TopName(e *document.Entry) string { return e.Top().Module.Name + ":" + e.Top().Name }

// Singular returns the name of the kind of an entry in the singular ("pod").
func Singular(e *document.Entry) string {
	if i := slices.IndexFunc(All(), func(k Kind) bool { return k.Has(e) }); i >= 0 {
		return All()[i].Singular
	}
	return e.Node().Name
}

// Name returns the name of the kind of an entry ("pods"), or of a container's entry
// "module:container".
func Name(e *document.Entry) string {
	if i := slices.IndexFunc(All(), func(k Kind) bool { return k.Has(e) }); i >= 0 {
		return All()[i].Name
	}
	return e.Node().Module.Name + ":" + e.Node().Name
}

// isPolicy reports whether an entry is a network policy.
func isPolicy(e *document.Entry) bool { return e.Node().Name == "network-policy" }

// Label returns the name of an entry for people: "namespace/name", "name", or empty.
func Label(e *document.Entry) string {
	switch name := e.Leaf("name"); {
	case name != "" && !isPolicy(e):
		return Namespace(e.Leaf("network-NS")) + "/" + name
	case name != "":
		return name
	}
	return e.Leaf("host-name")
}

// Title names an entry in a line: "pods/8f2a6d5e-… (shop/web)".
func Title(e *document.Entry) string {
	text := strings.Join(append([]string{Name(e)}, e.Key...), "/")
	if name := Label(e); name != "" {
		text += " (" + name + ")"
	}
	return text
}

// Calls reports whether name is the key of an entry, its name, or its "namespace/name".
func Calls(e *document.Entry, name string) bool {
	own := Label(e)
	_, bare, _ := strings.Cut(own, "/")
	return strings.EqualFold(name, strings.Join(e.Key, ",")) || own != "" && (name == own || name == bare)
}

// Namespace returns the namespace that a client sent, or the default namespace if it sent
// none.
func Namespace(sent string) string { return cmp.Or(sent, coe.DefaultNamespace) }
