package codec

import (
	"bytes"
	"cmp"
	"reflect"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Entry is an entry of one of Netvirt's lists. Its fields are the leaves of the model; all
// other leaves belong to other writers.
type Entry interface {
	Key() string
	// Normalize brings an entry that was read into the form that encode writes: lists are
	// sorted, identities have their prefix.
	Normalize()
	// Own returns a copy without the leaves of other writers.
	Own() Entry
	// Keep copies the leaves of other writers from the existing entry, so that a write does
	// not delete them.
	Keep(there Entry)
}

// others holds the leaves of other writers in a container or an entry.
type others struct {
	Others jsontext.Value `json:",embed"` //nolint:staticcheck // the option is go-json-experiment's
}

// Same reports whether two normalized entries are equal. It compares the entries of pods without
// reflection, because most entries of a datastore are theirs.
func Same(a, b Entry) bool {
	switch a := a.(type) {
	case *IETFInterface:
		b, ok := b.(*IETFInterface)
		return ok && a.same(b)
	case *ELANInterface:
		b, ok := b.(*ELANInterface)
		return ok && a.same(b)
	case *VPNInterface:
		b, ok := b.(*VPNInterface)
		return ok && a.same(b)
	}
	return reflect.DeepEqual(a, b)
}

// prefixed adds the module to an identity without one. The module may be left out if it is
// the module of the leaf (RFC 7951, section 6.8).
func prefixed(module, identity string) string {
	if identity == "" || strings.Contains(identity, ":") {
		return identity
	}
	return module + ":" + identity
}

// sortBy sorts a list by key, because controllers do not. It returns nil for an empty list.
func sortBy[E any](list []E, key func(E) string) []E {
	if len(list) == 0 {
		return nil
	}
	slices.SortStableFunc(list, func(a, b E) int { return cmp.Compare(key(a), key(b)) })
	return list
}

// ELANInstance is an elan-instance.
type ELANInstance struct {
	Name           string `json:"elan-instance-name"`
	SegmentType    string `json:"segment-type,omitempty"`
	SegmentationID uint32 `json:"segmentation-id"`
	External       bool   `json:"external"`
	Description    string `json:"description,omitempty"`
	others
}

// Key implements Entry.
func (e *ELANInstance) Key() string { return e.Name }

// Normalize implements Entry.
func (e *ELANInstance) Normalize() { e.SegmentType = prefixed("elan", e.SegmentType) }

// Own implements Entry.
func (e *ELANInstance) Own() Entry { o := *e; o.Others = nil; return &o }

// Keep implements Entry.
func (e *ELANInstance) Keep(there Entry) { e.Others = there.(*ELANInstance).Others }

// vpnInstance is a vpn-instance of module l3vpn.
type vpnInstance struct {
	Name        string `json:"vpn-instance-name"`
	Type        string `json:"type,omitempty"`
	L3VNI       uint32 `json:"l3vni"`
	Description string `json:"description,omitempty"`
	IPv4        family `json:"ipv4-family"`
	others
}

// family holds the leaves of a vpn-instance for an address family.
type family struct {
	RouteDistinguishers []string `json:"route-distinguisher,omitempty"`
	Targets             targets  `json:"vpnTargets"`
	others
}

type targets struct {
	Target []target `json:"vpnTarget,omitempty"`
}

type target struct {
	Value string `json:"vrfRTValue"`
	Type  string `json:"vrfRTType"`
}

func (t *targets) Normalize() { t.Target = sortBy(t.Target, func(t target) string { return t.Value }) }

func (e *vpnInstance) Key() string { return e.Name }
func (e *vpnInstance) Normalize()  { e.IPv4.Targets.Normalize() }
func (e *vpnInstance) Own() Entry {
	o := *e
	o.Others, o.IPv4.Others = nil, nil
	return &o
}
func (e *vpnInstance) Keep(there Entry) {
	t := there.(*vpnInstance)
	e.Others, e.IPv4.Others = t.Others, t.IPv4.Others
}

// IETFInterface is an interface of module ietf-interfaces, with the leaves of genius and aclservice.
type IETFInterface struct {
	Name        string `json:"name"`
	Type        string `json:"type,omitempty"`
	Enabled     bool   `json:"enabled"`
	L2VLANMode  string `json:"odl-interface:l2vlan-mode,omitempty"`
	Parent      string `json:"odl-interface:parent-interface,omitempty"`
	Description string `json:"description,omitempty"`
	// The leaves of aclservice.
	Secured *bool         `json:"aclservice:port-security-enabled,omitzero"`
	Groups  []string      `json:"aclservice:security-groups,omitempty"`
	Pairs   []addressPair `json:"aclservice:allowed-address-pairs,omitempty"`
	others
}

type addressPair struct {
	MAC     string `json:"mac-address"`
	Address string `json:"ip-address"`
}

// Key implements Entry.
func (e *IETFInterface) Key() string { return e.Name }

// Normalize implements Entry.
func (e *IETFInterface) Normalize() {
	e.Groups = sortBy(e.Groups, func(g string) string { return g })
	e.Pairs = sortBy(e.Pairs, func(p addressPair) string { return p.MAC + " " + p.Address })
}

// Own implements Entry.
func (e *IETFInterface) Own() Entry { o := *e; o.Others = nil; return &o }

// Keep implements Entry.
func (e *IETFInterface) Keep(there Entry) { e.Others = there.(*IETFInterface).Others }

func (e *IETFInterface) same(o *IETFInterface) bool {
	return e.Name == o.Name && e.Type == o.Type && e.Enabled == o.Enabled && e.L2VLANMode == o.L2VLANMode && e.Parent == o.Parent &&
		e.Description == o.Description && (e.Secured == nil) == (o.Secured == nil) && (e.Secured == nil || *e.Secured == *o.Secured) &&
		slices.Equal(e.Groups, o.Groups) && slices.Equal(e.Pairs, o.Pairs) && bytes.Equal(e.Others, o.Others)
}

// ELANInterface is an elan-interface with its static MAC entries.
type ELANInterface struct {
	Name        string     `json:"name"`
	ELAN        string     `json:"elan-instance-name"`
	MACEntries  []macEntry `json:"static-mac-entries,omitempty"`
	Description string     `json:"description,omitempty"`
	others
}

type macEntry struct {
	MAC     string `json:"mac-address"`
	Address string `json:"ip-prefix,omitempty"`
}

// Key implements Entry.
func (e *ELANInterface) Key() string { return e.Name }

// Normalize implements Entry.
func (e *ELANInterface) Normalize() {
	e.MACEntries = sortBy(e.MACEntries, func(m macEntry) string { return m.MAC })
}

// Own implements Entry.
func (e *ELANInterface) Own() Entry { o := *e; o.Others = nil; return &o }

// Keep implements Entry.
func (e *ELANInterface) Keep(there Entry) { e.Others = there.(*ELANInterface).Others }

func (e *ELANInterface) same(o *ELANInterface) bool {
	return e.Name == o.Name && e.ELAN == o.ELAN && slices.Equal(e.MACEntries, o.MACEntries) && e.Description == o.Description &&
		bytes.Equal(e.Others, o.Others)
}

// VPNInterface is a vpn-interface of either module; see MarshalJSONTo.
type VPNInterface struct {
	Name        string      `json:"name"`
	Router      bool        `json:"router-interface"`
	VPNs        []VPNName   `json:"vpn-instance-names,omitempty"`
	Adjacencies []adjacency `json:"odl-l3vpn:adjacency,omitempty"`
	others
	moved bool
}

// VPNName is the name of a vpn-instance that a vpn-interface is a member of.
type VPNName struct {
	Name       string `json:"vpn-name"`
	SubnetType string `json:"associated-subnet-type,omitempty"`
}

type adjacency struct {
	Address  string `json:"ip_address"`
	MAC      string `json:"mac_address,omitempty"`
	Type     string `json:"adjacency_type,omitempty"`
	SubnetID string `json:"subnet_id,omitempty"`
	Gateway  string `json:"subnet_gateway_ip,omitempty"`
	others
}

// primary is the type of our adjacencies. The controller adds adjacencies of other types
// that it learns.
const primary = "primary-adjacency"

// Key implements Entry.
func (e *VPNInterface) Key() string { return e.Name }

// Normalize implements Entry.
func (e *VPNInterface) Normalize() {
	e.VPNs = sortBy(e.VPNs, func(v VPNName) string { return v.Name })
	e.Adjacencies = sortBy(e.Adjacencies, func(a adjacency) string { return a.Address })
}

// Own implements Entry.
func (e *VPNInterface) Own() Entry {
	o := *e
	o.Others, o.Adjacencies = nil, nil
	for _, a := range e.Adjacencies {
		if a.Type == primary {
			a.Others = nil
			o.Adjacencies = append(o.Adjacencies, a)
		}
	}
	return &o
}

func (e *VPNInterface) same(o *VPNInterface) bool {
	return e.Name == o.Name && e.Router == o.Router && slices.Equal(e.VPNs, o.VPNs) && e.moved == o.moved && bytes.Equal(e.Others, o.Others) &&
		slices.EqualFunc(e.Adjacencies, o.Adjacencies, func(a, b adjacency) bool {
			return a.Address == b.Address && a.MAC == b.MAC && a.Type == b.Type && a.SubnetID == b.SubnetID && a.Gateway == b.Gateway &&
				bytes.Equal(a.Others, b.Others)
		})
}

// Keep implements Entry.
func (e *VPNInterface) Keep(there Entry) {
	t := there.(*VPNInterface)
	e.Others = t.Others
	for _, a := range t.Adjacencies {
		i := slices.IndexFunc(e.Adjacencies, func(o adjacency) bool { return o.Address == a.Address })
		switch {
		case i >= 0:
			e.Adjacencies[i].Others = a.Others
		case a.Type != primary:
			e.Adjacencies = append(e.Adjacencies, a)
		}
	}
}

// routerPorts holds the floating-ip-info of a router.
type routerPorts struct {
	Router string       `json:"router-id"`
	Ports  []routerPort `json:"ports,omitempty"`
	others
}

type routerPort struct {
	Name string    `json:"port-name"`
	Map  []natPair `json:"internal-to-external-port-map,omitempty"`
}

type natPair struct {
	Internal   string `json:"internal-ip"`
	External   string `json:"external-ip,omitempty"`
	ExternalID string `json:"external-id,omitempty"`
}

func (e *routerPorts) Key() string { return e.Router }
func (e *routerPorts) Normalize() {
	e.Ports = sortBy(e.Ports, func(p routerPort) string { return p.Name })
	for i := range e.Ports {
		e.Ports[i].Map = sortBy(e.Ports[i].Map, func(p natPair) string { return p.Internal })
	}
}
func (e *routerPorts) Own() Entry       { o := *e; o.Others = nil; return &o }
func (e *routerPorts) Keep(there Entry) { e.Others = there.(*routerPorts).Others }

// Tagged reports whether the controller has tagged the elan-instance.
func (e *ELANInstance) Tagged() bool {
	var leaves struct {
		Tag uint32 `json:"elan-tag"`
	}
	return len(e.Others) > 0 && json.Unmarshal(e.Others, &leaves) == nil && leaves.Tag != 0
}
