package odl

import (
	"encoding/xml"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// unpublished has the bundles of Netvirt that are left out. The first two are in no registry, and the others
// need them.
var unpublished = []string{"neutronvpn-impl", "alarm-impl", "neutronvpn-shell", "natservice-impl", "qosservice-impl", "statemanager-impl"}

// restconf has the features of the two dialects.
var restconf = []string{"odl-restconf", "odl-restconf-nb-rfc8040"}

// node is an element of a document with a single namespace, which the outermost element declares.
type node struct {
	XMLName xml.Name
	Attrs   []xml.Attr `xml:",any,attr"`
	Text    string     `xml:",chardata"`
	Nodes   []node     `xml:",any"`
}

func element(name, text string, attrs ...xml.Attr) node {
	return node{XMLName: xml.Name{Local: name}, Attrs: attrs, Text: text}
}

func attr(name, value string) xml.Attr {
	return xml.Attr{Name: xml.Name{Local: name}, Value: value}
}

// adaptFeature changes Netvirt's feature into the feature to boot: without the unpublished bundles, with the
// bundle that replaces them, and with RESTCONF.
func adaptFeature(published []byte, netconf string) ([]byte, error) {
	var root node
	if err := xml.Unmarshal(published, &root); err != nil {
		return nil, err
	}
	root.plain()
	i := slices.IndexFunc(root.Nodes, func(n node) bool { return n.XMLName.Local == "feature" })
	if i < 0 {
		return nil, errors.New("it contains none")
	}
	f := &root.Nodes[i]
	f.Nodes = slices.DeleteFunc(f.Nodes, node.isUnpublished)
	for _, name := range restconf {
		f.Nodes = append(f.Nodes, element("feature", name, attr("version", netconf)))
	}
	f.Nodes = append(f.Nodes, element("bundle", fmt.Sprintf("mvn:%s/%s/%s", stub.group, stub.name, stub.version)))
	f.set("name", feature.name)
	f.set("version", feature.version)
	root.set("name", feature.name)
	for _, name := range restconf {
		repository := fmt.Sprintf("mvn:org.opendaylight.netconf/%s/%s/xml/features", name, netconf)
		root.Nodes = slices.Insert(root.Nodes, 0, element("repository", repository))
	}
	return xml.MarshalIndent(root, "", "  ")
}

func (n node) isUnpublished() bool {
	return slices.ContainsFunc(unpublished, func(name string) bool { return strings.Contains(n.Text, "/"+name+"/") })
}

// plain removes the namespaces of names, because each element would declare them again, and the space around
// texts. It removes attributes of other namespaces, which are about schemas.
func (n *node) plain() {
	n.XMLName.Space = ""
	n.Attrs = slices.DeleteFunc(n.Attrs, func(a xml.Attr) bool { return a.Name.Space != "" })
	n.Text = strings.TrimSpace(n.Text)
	for i := range n.Nodes {
		n.Nodes[i].plain()
	}
}

func (n *node) set(name, value string) {
	i := slices.IndexFunc(n.Attrs, func(a xml.Attr) bool { return a.Name.Local == name })
	if i < 0 {
		n.Attrs = append(n.Attrs, attr(name, value))
		return
	}
	n.Attrs[i].Value = value
}
