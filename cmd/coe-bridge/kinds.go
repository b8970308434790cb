package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/restconf/document"
	"github.com/coe-bridge/coe-bridge/yang"
)

// kind is something that clients write: the entries of a list.
type kind struct {
	name, singular string
	top, list      string // "module:container", and the list's name in it
	short          string
}

func kinds() []kind {
	return []kind{
		{"pods", "pod", "pod:coe", "pods", "Pods"},
		{"services", "service", "service:service-information", "services", "Services"},
		{"endpoints", "endpoint", "service:endpoints-info", "endpoints", "Endpoints of services"},
		{"nodes", "node", "k8s-node:k8s-nodes-info", "k8s-nodes", "Nodes"},
		{"clusters", "cluster", "k8s-cluster:k8s-clusters-info", "k8s-clusters", "Clusters"},
		{"policies", "policy", "k8s:k8s", "network-policy", "Network policies (stored, and not enforced: this version has none)"},
		{"pools", "pool", "dhcp_allocation_pool:dhcp_allocation_pool", "network", "DHCP pools, by network"},
	}
}

// kindNamed is the kind of that name, in singular or plural.
func kindNamed(name string) (kind, error) {
	for _, k := range kinds() {
		if name == k.name || name == k.singular {
			return k, nil
		}
	}
	return kind{}, fmt.Errorf("there is no kind %q that is written: want one of %s", name, strings.Join(kindNames(), ", "))
}

func kindNames() []string {
	var names []string
	for _, k := range kinds() {
		names = append(names, k.name)
	}
	return names
}

// catalog makes readers of documents of all kinds.
type catalog struct {
	schema *yang.Schema
	tops   []*yang.Node
}

func loadCatalog() (*catalog, error) {
	schema, err := yang.Load()
	if err != nil {
		return nil, err
	}
	c := &catalog{schema: schema}
	for _, k := range kinds() {
		module, name, _ := strings.Cut(k.top, ":")
		c.tops = append(c.tops, schema.Module(module).Child(name))
	}
	return c, nil
}

func (c *catalog) reader() *document.Reader { return document.NewReader(c.schema, c.tops) }

// isOf tells whether an entry is of the kind.
func (k kind) isOf(e *document.Entry) bool {
	return e.Key != nil && e.Node().Name == k.list && topName(e) == k.top
}

func topName(e *document.Entry) string { return e.Top().Module.Name + ":" + e.Top().Name }

// singular names the kind of an entry of a list.
func singular(e *document.Entry) string {
	if i := slices.IndexFunc(kinds(), func(k kind) bool { return k.isOf(e) }); i >= 0 {
		return kinds()[i].singular
	}
	return e.Node().Name
}

// kindOf names what an entry is of: a kind, or a container.
func kindOf(e *document.Entry) string {
	if i := slices.IndexFunc(kinds(), func(k kind) bool { return k.isOf(e) }); i >= 0 {
		return kinds()[i].name
	}
	return e.Node().Module.Name + ":" + e.Node().Name
}

func isPolicy(e *document.Entry) bool { return e.Node().Name == "network-policy" }

// label is what people call an entry: "namespace/name", "name", or nothing.
func label(e *document.Entry) string {
	switch name := e.Leaf("name"); {
	case name != "" && !isPolicy(e):
		return namespace(e.Leaf("network-NS")) + "/" + name
	case name != "":
		return name
	}
	return e.Leaf("host-name")
}

// title names an entry in a line: "pods/8f2a6d5e-… (shop/web)".
func title(e *document.Entry) string {
	text := strings.Join(append([]string{kindOf(e)}, e.Key...), "/")
	if name := label(e); name != "" {
		text += " (" + name + ")"
	}
	return text
}

// isCalled tells whether that is an entry's key, its name, or its NAMESPACE/NAME.
func isCalled(e *document.Entry, name string) bool {
	own := label(e)
	_, bare, _ := strings.Cut(own, "/")
	return strings.EqualFold(name, strings.Join(e.Key, ",")) || own != "" && (name == own || name == bare)
}
