package odl

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// The modules that hold vpn-instances and vpn-interfaces: l3vpn, and from Magnesium on the
// other.
const (
	moduleL3VPN = "l3vpn"
	moduleMoved = "l3vpn-instances-interfaces"
)

// form is the form that these lists have.
type form int

const (
	// nested is that of module l3vpn.
	nested form = iota
	// moved is that of Magnesium: it is another module that the lists are in, and it is that,
	// and not a third, that the adjacencies of vpn-interfaces are in.
	moved
	// flat came with Aluminium: vpn-instances have neither address families nor a
	// description any more.
	flat
)

// formOf finds out the form, which, between the last two, no module's name or revision tells:
// only one of them has address families to be asked for.
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
	foreign
}

func (e *flatVPNInstance) key() string      { return e.Name }
func (e *flatVPNInstance) tidy()            { e.Targets.tidy() }
func (e *flatVPNInstance) own() entry       { o := *e; o.Foreign = nil; return &o }
func (e *flatVPNInstance) keep(there entry) { e.Foreign = there.(*flatVPNInstance).Foreign }

// The forms of a vpn-interface.
type (
	nestedVPNInterface vpnInterface
	movedVPNInterface  struct {
		Name        string      `json:"name"`
		Router      bool        `json:"router-interface"`
		VPNs        []vpnName   `json:"vpn-instance-names,omitempty"`
		Adjacencies []adjacency `json:"adjacency,omitempty"`
		foreign
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
