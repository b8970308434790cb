package odl

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// The modules with vpn-instances and vpn-interfaces: l3vpn, and since Magnesium
// l3vpn-instances-interfaces.
const (
	moduleL3VPN = "l3vpn"
	moduleMoved = "l3vpn-instances-interfaces"
)

// form is the form of these lists.
type form int

const (
	// nested is the form of module l3vpn.
	nested form = iota
	// moved is the form of Magnesium: the lists and the adjacencies of vpn-interfaces are in
	// module l3vpn-instances-interfaces.
	moved
	// flat is the form since Aluminium: vpn-instances have neither address families nor a
	// description.
	flat
)

// formOf detects the form. Moved and flat have the same module name and revision, so it
// requests an address family, which only moved has.
func (s *session) formOf(ctx context.Context, modules []string) (form, error) {
	if !slices.Contains(modules, moduleMoved) {
		return nested, nil
	}
	l := &listsOf(moved)[vpnInstances]
	err := s.send(ctx, s.request(http.MethodGet, s.dialect.entry(l, "coe-bridge:probe")+"/ipv4-family", nil), nil)
	var answer *answerError
	switch {
	case err != nil && !errors.As(err, &answer):
		return nested, err
	case err == nil || s.dialect.missing(answer):
		return moved, nil
	}
	return flat, nil
}

// flatVPNInstance is a vpn-instance of the flat form.
type flatVPNInstance struct {
	Name                string   `json:"vpn-instance-name"`
	RouteDistinguishers []string `json:"route-distinguisher,omitempty"`
	Targets             targets  `json:"vpnTargets"`
	L3VNI               uint32   `json:"l3vni"`
	others
}

func (e *flatVPNInstance) key() string      { return e.Name }
func (e *flatVPNInstance) normalize()       { e.Targets.normalize() }
func (e *flatVPNInstance) own() entry       { o := *e; o.Others = nil; return &o }
func (e *flatVPNInstance) keep(there entry) { e.Others = there.(*flatVPNInstance).Others }

// The forms of a vpn-interface.
type (
	nestedVPNInterface vpnInterface
	movedVPNInterface  struct {
		Name        string      `json:"name"`
		Router      bool        `json:"router-interface"`
		VPNs        []vpnName   `json:"vpn-instance-names,omitempty"`
		Adjacencies []adjacency `json:"adjacency,omitempty"`
		others
		moved bool
	}
)

// MarshalJSONTo implements json.MarshalerTo.
func (e *vpnInterface) MarshalJSONTo(out *jsontext.Encoder) error {
	if e.moved {
		return json.MarshalEncode(out, (*movedVPNInterface)(e))
	}
	return json.MarshalEncode(out, (*nestedVPNInterface)(e))
}

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (e *vpnInterface) UnmarshalJSONFrom(in *jsontext.Decoder) error {
	if e.moved {
		return json.UnmarshalDecode(in, (*movedVPNInterface)(e))
	}
	return json.UnmarshalDecode(in, (*nestedVPNInterface)(e))
}
