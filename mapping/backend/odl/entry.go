package odl

import (
	"cmp"
	"reflect"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// entry is an entry of one of Netvirt's lists. Its fields are the leaves that the model
// says; what else an entry has is another's.
type entry interface {
	key() string
	// tidy brings what was read into the form in which encode writes: lists sorted, the
	// prefixes of identities written out.
	tidy()
	// own is a copy without what is another's.
	own() entry
	// keep takes over from what is there what is another's, so that a write does not
	// wipe it.
	keep(there entry)
}

// foreign is what is another's of a container or an entry.
type foreign struct {
	Foreign jsontext.Value `json:",embed"` //nolint:staticcheck // the option is go-json-experiment's
}

func same(a, b entry) bool { return reflect.DeepEqual(a, b) }

// prefixed adds the module to an identity that has none: it may be left out where it is
// that of the leaf (RFC 7951, section 6.8).
func prefixed(module, identity string) string {
	if identity == "" || strings.Contains(identity, ":") {
		return identity
	}
	return module + ":" + identity
}

// sortBy sorts a list by key, as controllers do not; an empty one is none.
func sortBy[E any](list []E, key func(E) string) []E {
	if len(list) == 0 {
		return nil
	}
	slices.SortStableFunc(list, func(a, b E) int { return cmp.Compare(key(a), key(b)) })
	return list
}

type elanInstance struct {
	Name           string `json:"elan-instance-name"`
	SegmentType    string `json:"segment-type,omitempty"`
	SegmentationID uint32 `json:"segmentation-id"`
	External       bool   `json:"external"`
	Description    string `json:"description,omitempty"`
	foreign
}

func (e *elanInstance) key() string      { return e.Name }
func (e *elanInstance) tidy()            { e.SegmentType = prefixed("elan", e.SegmentType) }
func (e *elanInstance) own() entry       { o := *e; o.Foreign = nil; return &o }
func (e *elanInstance) keep(there entry) { e.Foreign = there.(*elanInstance).Foreign }

// vpnInstance is one of module l3vpn.
type vpnInstance struct {
	Name        string `json:"vpn-instance-name"`
	Type        string `json:"type,omitempty"`
	L3VNI       uint32 `json:"l3vni"`
	Description string `json:"description,omitempty"`
	IPv4        family `json:"ipv4-family"`
	foreign
}

// family is what a vpn-instance says of an address family.
type family struct {
	RouteDistinguishers []string `json:"route-distinguisher,omitempty"`
	Targets             targets  `json:"vpnTargets"`
	foreign
}

type targets struct {
	Target []target `json:"vpnTarget,omitempty"`
}

type target struct {
	Value string `json:"vrfRTValue"`
	Type  string `json:"vrfRTType"`
}

func (t *targets) tidy() { t.Target = sortBy(t.Target, func(t target) string { return t.Value }) }

func (e *vpnInstance) key() string { return e.Name }
func (e *vpnInstance) tidy()       { e.IPv4.Targets.tidy() }
func (e *vpnInstance) own() entry {
	o := *e
	o.Foreign, o.IPv4.Foreign = nil, nil
	return &o
}
func (e *vpnInstance) keep(there entry) {
	t := there.(*vpnInstance)
	e.Foreign, e.IPv4.Foreign = t.Foreign, t.IPv4.Foreign
}

type ietfInterface struct {
	Name        string `json:"name"`
	Type        string `json:"type,omitempty"`
	Enabled     bool   `json:"enabled"`
	L2VLANMode  string `json:"odl-interface:l2vlan-mode,omitempty"`
	Parent      string `json:"odl-interface:parent-interface,omitempty"`
	Description string `json:"description,omitempty"`
	foreign
}

func (e *ietfInterface) key() string      { return e.Name }
func (e *ietfInterface) tidy()            {}
func (e *ietfInterface) own() entry       { o := *e; o.Foreign = nil; return &o }
func (e *ietfInterface) keep(there entry) { e.Foreign = there.(*ietfInterface).Foreign }

type elanInterface struct {
	Name        string     `json:"name"`
	ELAN        string     `json:"elan-instance-name"`
	MACEntries  []macEntry `json:"static-mac-entries,omitempty"`
	Description string     `json:"description,omitempty"`
	foreign
}

type macEntry struct {
	MAC     string `json:"mac-address"`
	Address string `json:"ip-prefix,omitempty"`
}

func (e *elanInterface) key() string { return e.Name }
func (e *elanInterface) tidy() {
	e.MACEntries = sortBy(e.MACEntries, func(m macEntry) string { return m.MAC })
}
func (e *elanInterface) own() entry       { o := *e; o.Foreign = nil; return &o }
func (e *elanInterface) keep(there entry) { e.Foreign = there.(*elanInterface).Foreign }

// vpnInterface is one of either module; see MarshalJSONTo.
type vpnInterface struct {
	Name        string      `json:"name"`
	Router      bool        `json:"router-interface"`
	VPNs        []vpnName   `json:"vpn-instance-names,omitempty"`
	Adjacencies []adjacency `json:"odl-l3vpn:adjacency,omitempty"`
	foreign
	moved bool
}

type vpnName struct {
	Name       string `json:"vpn-name"`
	SubnetType string `json:"associated-subnet-type,omitempty"`
}

type adjacency struct {
	Address  string `json:"ip_address"`
	MAC      string `json:"mac_address,omitempty"`
	Type     string `json:"adjacency_type,omitempty"`
	SubnetID string `json:"subnet_id,omitempty"`
	Gateway  string `json:"subnet_gateway_ip,omitempty"`
	foreign
}

// primary is the type of the adjacencies that are ours; the controller adds others, of what
// it learns.
const primary = "primary-adjacency"

func (e *vpnInterface) key() string { return e.Name }
func (e *vpnInterface) tidy() {
	e.VPNs = sortBy(e.VPNs, func(v vpnName) string { return v.Name })
	e.Adjacencies = sortBy(e.Adjacencies, func(a adjacency) string { return a.Address })
}

func (e *vpnInterface) own() entry {
	o := *e
	o.Foreign, o.Adjacencies = nil, nil
	for _, a := range e.Adjacencies {
		if a.Type == primary {
			a.Foreign = nil
			o.Adjacencies = append(o.Adjacencies, a)
		}
	}
	return &o
}

func (e *vpnInterface) keep(there entry) {
	t := there.(*vpnInterface)
	e.Foreign = t.Foreign
	for _, a := range t.Adjacencies {
		i := slices.IndexFunc(e.Adjacencies, func(o adjacency) bool { return o.Address == a.Address })
		switch {
		case i >= 0:
			e.Adjacencies[i].Foreign = a.Foreign
		case a.Type != primary:
			e.Adjacencies = append(e.Adjacencies, a)
		}
	}
}

// routerPorts is all that floating-ip-info says of a router.
type routerPorts struct {
	Router string       `json:"router-id"`
	Ports  []routerPort `json:"ports,omitempty"`
	foreign
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

func (e *routerPorts) key() string { return e.Router }
func (e *routerPorts) tidy() {
	e.Ports = sortBy(e.Ports, func(p routerPort) string { return p.Name })
	for i := range e.Ports {
		e.Ports[i].Map = sortBy(e.Ports[i].Map, func(p natPair) string { return p.Internal })
	}
}
func (e *routerPorts) own() entry       { o := *e; o.Foreign = nil; return &o }
func (e *routerPorts) keep(there entry) { e.Foreign = there.(*routerPorts).Foreign }
