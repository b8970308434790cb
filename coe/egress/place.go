// Package egress decides which nodes hold the egress addresses of EgressIPs. The leader runs a Keeper: it accepts what
// sources request, asks the nodes that may hold an address whether they live, and moves addresses step by step. A step
// is a record, and follows when the nodes or the backend have confirmed the step before. So another leader continues
// at any step.
//
// The package also computes, for each node, its part in the records, for the node's stream. It knows neither
// Kubernetes nor the backend.
package egress

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Records is the prefix of the records in the name space of all records. The name of an EgressIP follows, or
// candidatesName, which no EgressIP has. Each record has a copy, with copyPrefix before its name: a record that is damaged
// must neither let pods leave with other addresses nor take addresses from nodes.
const (
	Records        = "egress"
	candidatesName = "_candidates"
	copyPrefix     = "_copy:"
)

// Candidates are the nodes that may hold addresses, and how they are asked. The record exists while there are
// EgressIPs.
type Candidates struct {
	Secret []byte       `json:"secret"` // of the cluster; see key
	Port   uint16       `json:"port"`
	Nodes  []netip.Addr `json:"nodes"` // sorted
}

// key returns the secret that a node shares with the bridge. It authenticates the answers of the node.
func (c *Candidates) key(node netip.Addr) []byte {
	h := hmac.New(sha256.New, c.Secret)
	h.Write([]byte(node.String()))
	return h.Sum(nil)
}

// Set is what the records hold.
type Set struct {
	Candidates *Candidates     // nil for none
	EgressIPs  []*coe.EgressIP // sorted by name
}

// Decode returns the records with these names, without the prefix. damaged are the names of those that cannot be read, and
// neither can their copies.
func Decode(records map[string][]byte) (s Set, damaged []string) {
	names := map[string]bool{}
	for name := range records {
		names[strings.TrimPrefix(name, copyPrefix)] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if name == candidatesName {
			s.Candidates = cmp.Or(decodeCandidates(records[name]), decodeCandidates(records[copyPrefix+name]))
		} else if e := cmp.Or(decode(name, records[name]), decode(name, records[copyPrefix+name])); e != nil {
			s.EgressIPs = append(s.EgressIPs, e)
		} else {
			damaged = append(damaged, name)
		}
	}
	return s, damaged
}

// decodeCandidates returns the Candidates in a record; nil if the record is missing or cannot be read.
func decodeCandidates(value []byte) *Candidates {
	c := &Candidates{}
	if json.Unmarshal(value, c) != nil || len(c.Secret) == 0 {
		return nil
	}
	return c
}

// decode returns the EgressIP in a record; nil if the record is missing or cannot be read.
func decode(name string, value []byte) *coe.EgressIP {
	e := &coe.EgressIP{}
	if err := json.Unmarshal(value, e); err != nil || e.Name != name || e.Validate() != nil || e.Number > netvirt.MaxEgressIPs {
		return nil
	}
	return e
}

// unreadable returns the names with a record that cannot be read, sorted.
func unreadable(records map[string][]byte) (all []string) {
	for record, value := range records {
		name := strings.TrimPrefix(record, copyPrefix)
		if name == candidatesName && decodeCandidates(value) == nil || name != candidatesName && decode(name, value) == nil {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// encode returns the records of a Set.
func (s Set) encode() map[string][]byte {
	out := map[string][]byte{}
	for _, e := range s.EgressIPs {
		out[e.Name], _ = json.Marshal(e) // strings and addresses always encode
	}
	if s.Candidates != nil {
		out[candidatesName], _ = json.Marshal(s.Candidates)
	}
	for name, value := range maps.Clone(out) {
		out[copyPrefix+name] = value
	}
	return out
}

// Place is the part of a node: the content of egress-changed.
type Place struct {
	Operation string    `json:"operation"`
	Version   string    `json:"version"` // a hash of the rest
	Port      uint16    `json:"port"`
	Key       string    `json:"key"` // in hexadecimal digits
	Addresses []Address `json:"address,omitempty"`
}

// Address is a port of the node.
type Address struct {
	Name    string     `json:"name"` // the iface-id
	Number  uint16     `json:"number"`
	NextHop netip.Addr `json:"next-hop"`
	MAC     string     `json:"mac-address"`
	Egress  netip.Addr `json:"egress-address"`
	Owner   bool       `json:"owner,omitempty"`
}

// Place returns the part of a node; nil if it has none.
func (s Set) Place(node netip.Addr) *Place {
	if s.Candidates == nil {
		return nil
	}
	p := &Place{Operation: "put", Port: s.Candidates.Port, Key: hex.EncodeToString(s.Candidates.key(node))}
	for _, e := range s.EgressIPs {
		for i, host := range e.Hosts {
			if host == node && e.Address.IsValid() {
				p.Addresses = append(p.Addresses, Address{
					Name: netvirt.EgressPortName(e.Number, i), Number: e.Number, NextHop: netvirt.EgressNextHop(e.Number, i),
					MAC: netvirt.EgressMAC(e.Number, i), Egress: e.Address, Owner: int(e.Owner) == i+1,
				})
			}
		}
	}
	if len(p.Addresses) == 0 && !slices.Contains(s.Candidates.Nodes, node) {
		return nil
	}
	content, _ := json.Marshal(p)
	sum := sha256.Sum256(content)
	p.Version = hex.EncodeToString(sum[:8])
	return p
}

// giving returns the nodes that give an address to another node, by which the pods leave already.
func (s Set) giving() map[netip.Addr]bool {
	all := map[netip.Addr]bool{}
	for _, e := range s.EgressIPs {
		if e.Owner > 0 && e.Owner != e.Active {
			all[e.Hosts[e.Owner-1]] = true
		}
	}
	return all
}

// Nodes returns the nodes with a part, sorted.
func (s Set) Nodes() (all []netip.Addr) {
	if s.Candidates == nil {
		return nil
	}
	all = slices.Clone(s.Candidates.Nodes)
	for _, e := range s.EgressIPs {
		for _, host := range e.Hosts {
			if host.IsValid() {
				all = append(all, host)
			}
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}

// ownerPort returns the name of the port of the node that has the address.
func ownerPort(e *coe.EgressIP) string { return netvirt.EgressPortName(e.Number, int(e.Owner)-1) }

// holder names the node that the pods of an EgressIP leave by, for messages.
func holder(e *coe.EgressIP) string {
	if host := e.Host(); host.IsValid() {
		return fmt.Sprint("node ", host)
	}
	return "no node"
}
