package codec

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// The modules with vpn-instances and vpn-interfaces: l3vpn, and since Magnesium
// l3vpn-instances-interfaces.
const (
	ModuleL3VPN = "l3vpn"
	ModuleMoved = "l3vpn-instances-interfaces"
)

// Form is the form of these lists.
type Form int

const (
	// Nested is the form of module l3vpn.
	Nested Form = iota
	// Moved is the form of Magnesium: the lists and the adjacencies of vpn-interfaces are in
	// module l3vpn-instances-interfaces.
	Moved
	// Flat is the form since Aluminium: vpn-instances have neither address families nor a
	// description.
	Flat
)

// flatVPNInstance is a vpn-instance of the flat form.
type flatVPNInstance struct {
	Name                string   `json:"vpn-instance-name"`
	RouteDistinguishers []string `json:"route-distinguisher,omitempty"`
	Targets             targets  `json:"vpnTargets"`
	L3VNI               uint32   `json:"l3vni"`
	others
}

func (e *flatVPNInstance) Key() string      { return e.Name }
func (e *flatVPNInstance) Normalize()       { e.Targets.Normalize() }
func (e *flatVPNInstance) Own() Entry       { o := *e; o.Others = nil; return &o }
func (e *flatVPNInstance) Keep(there Entry) { e.Others = there.(*flatVPNInstance).Others }

// The forms of a vpn-interface.
type (
	nestedVPNInterface VPNInterface
	movedVPNInterface  struct {
		Name        string      `json:"name"`
		Router      bool        `json:"router-interface"`
		VPNs        []VPNName   `json:"vpn-instance-names,omitempty"`
		Adjacencies []adjacency `json:"adjacency,omitempty"`
		others
		moved bool
	}
)

// MarshalJSONTo implements json.MarshalerTo.
func (e *VPNInterface) MarshalJSONTo(out *jsontext.Encoder) error {
	if e.moved {
		return json.MarshalEncode(out, (*movedVPNInterface)(e))
	}
	return json.MarshalEncode(out, (*nestedVPNInterface)(e))
}

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (e *VPNInterface) UnmarshalJSONFrom(in *jsontext.Decoder) error {
	if e.moved {
		return json.UnmarshalDecode(in, (*movedVPNInterface)(e))
	}
	return json.UnmarshalDecode(in, (*nestedVPNInterface)(e))
}
