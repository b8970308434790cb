package codec

import (
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// accessList is an access control list of Netvirt's aclservice. Netvirt identifies a rule by its
// name alone: it does not notice that a rule with the same name has other content.
type accessList struct {
	Name  string `json:"acl-name"`
	Type  string `json:"acl-type,omitempty"`
	Rules rules  `json:"access-list-entries"`
	others
	// marks: Netvirt removes the flows of a rule only if the rule is written with the leaf
	// deleted, and then deletes the rule. Oxygen has no such leaf, and compares the rules.
	marks bool
}

type rules struct {
	Rule []rule `json:"ace,omitempty"`
}

// rule permits what matches, or nothing if it matches no packet.
type rule struct {
	Name        string  `json:"rule-name"`
	Matches     matches `json:"matches"`
	Actions     actions `json:"actions"`
	Direction   string  `json:"aclservice:direction,omitempty"`
	RemoteGroup string  `json:"aclservice:remote-group-id,omitempty"`
	Deleted     bool    `json:"aclservice:deleted,omitzero"`
}

type matches struct {
	SourceMAC     string     `json:"source-mac-address,omitempty"`
	Protocol      uint8      `json:"protocol,omitzero"`
	Ports         *portRange `json:"destination-port-range,omitzero"`
	SourceV4      string     `json:"source-ipv4-network,omitempty"`
	DestinationV4 string     `json:"destination-ipv4-network,omitempty"`
	SourceV6      string     `json:"source-ipv6-network,omitempty"`
	DestinationV6 string     `json:"destination-ipv6-network,omitempty"`
}

type portRange struct {
	Lower uint16 `json:"lower-port"`
	Upper uint16 `json:"upper-port"`
}

type actions struct {
	Permit []jsontext.Value `json:"permit,omitempty"`
}

// accessListType is the type of all access control lists that aclservice knows, also of those
// with rules for IPv6.
const accessListType = "ietf-access-control-list:ipv4-acl"

// permit is the action of every rule: an empty leaf.
var permit = actions{[]jsontext.Value{jsontext.Value("null")}}

// NewMarkedList returns an empty list of a release with the leaf deleted.
func NewMarkedList() Entry { return &accessList{marks: true} }

func (e *accessList) Key() string { return e.Name }

func (e *accessList) Normalize() {
	e.Type = prefixed("ietf-access-control-list", e.Type)
	for i := range e.Rules.Rule {
		e.Rules.Rule[i].Direction = prefixed("aclservice", e.Rules.Rule[i].Direction)
	}
	e.Rules.Rule = sortBy(e.Rules.Rule, func(r rule) string { return r.Name })
}

// Own returns the list without the rules that Netvirt is deleting.
func (e *accessList) Own() Entry {
	o := accessList{Name: e.Name, Type: e.Type}
	for _, r := range e.Rules.Rule {
		if !r.Deleted {
			o.Rules.Rule = append(o.Rules.Rule, r)
		}
	}
	return &o
}

// WithoutRules returns an access list that has no rules yet.
func WithoutRules(e Entry) Entry {
	l := e.(*accessList)
	return &accessList{Name: l.Name, Type: l.Type}
}

// Keep also keeps the rules that Netvirt has to delete.
func (e *accessList) Keep(there Entry) {
	t := there.(*accessList)
	e.Others = t.Others
	if !t.marks {
		return
	}
	for _, r := range t.Rules.Rule {
		if !slices.ContainsFunc(e.Rules.Rule, func(o rule) bool { return o.Name == r.Name }) {
			r.Deleted = true
			e.Rules.Rule = append(e.Rules.Rule, r)
		}
	}
}
