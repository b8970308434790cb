package restconf

import (
	"bytes"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/restconf/datastore"
	"github.com/coe-bridge/coe-bridge/yang"
)

// Foreign are entries of a list that clients may write, and that come from
// elsewhere. Clients see them among what clients wrote, in configuration and
// operational state alike: the models' nodes are configuration, whoever said it.
// Of two entries with one key the foreign one is believed, and shown.
//
// Clients can't change them:
//
//	POST, PUT, PATCH, DELETE of it or of what is in it  409 in-use
//	POST or PATCH that has it in its body               409 in-use
//	PUT of the container with it in the body            nothing is written of it where the body
//	                                                    has it as it is (who reads, changes and
//	                                                    writes back sends all); else 409 in-use
//	PUT of the container without it in the body         it stays
//	DELETE of the container                             what clients wrote goes, it stays;
//	                                                    409 in-use where clients wrote nothing
//
// That holds as well for an entry that a client had written before it was
// foreign. What the client wrote is there until it writes or deletes the
// container, and is shown again where the foreign entry goes before that.
//
// Whether an entry is foreign is looked up when a write is made: one that becomes
// so at the same moment may be written still, and then is believed over it.
type Foreign interface {
	// Entry is the entry with this key as a JSON object that yang.DecodeObject reads:
	// its values are canonical. It is nil where there is none, and isn't changed
	// afterwards.
	Entry(key string) []byte
	// Entries are all entries in that form, by key and ordered by it.
	Entries() iter.Seq2[string, []byte]
	// Any is the key of one entry, no matter which, and takes no longer where there are
	// many. It is empty where there is none.
	Any() string
	// Says tells who tries to write the entry with this key where it comes from and
	// what to do instead. It is empty where there is no such entry.
	Says(key string) string
}

// checkForeign refuses lists whose entries are not told apart by one key right
// below their top container.
func checkForeign(lists map[*yang.Node]Foreign) error {
	for list := range lists {
		if !isUnit(list) || len(list.Keys) != 1 || list.Parent.Parent != nil {
			return fmt.Errorf("%s can't have foreign entries: it is no list with one key in a top container", stepsTo(list).path())
		}
	}
	return nil
}

// unit is the unit of a list that clients see for a key, or nil.
func (s *Server) unit(list *yang.Node, key []string) *datastore.Unit {
	if f := s.foreign[list]; f != nil {
		if raw := f.Entry(key[0]); raw != nil {
			return &datastore.Unit{Node: list, Key: key, Raw: raw}
		}
	}
	return s.store.Get(list, key...)
}

// tree are all units of a top container that clients see: the container's own
// first, those of one list side by side in the order of their keys.
func (s *Server) tree(top *yang.Node) []*datastore.Unit {
	return s.withForeign(top, s.store.Tree(top))
}

// withForeign are the units of a top container with those that are foreign.
func (s *Server) withForeign(top *yang.Node, units []*datastore.Unit) []*datastore.Unit {
	for _, list := range top.Children {
		if f := s.foreign[list]; f != nil {
			units = overlay(units, foreignUnits(list, f))
		}
	}
	return units
}

// foreignUnits are the foreign entries of a list, ordered by key.
func foreignUnits(list *yang.Node, f Foreign) []*datastore.Unit {
	var units []*datastore.Unit
	for key, raw := range f.Entries() {
		units = append(units, &datastore.Unit{Node: list, Key: []string{key}, Raw: raw})
	}
	return units
}

func byKey(a, b *datastore.Unit) int { return strings.Compare(a.Key[0], b.Key[0]) }

// overlay is units with those of one list, ordered by key, put in or in the place
// of others.
func overlay(units, over []*datastore.Unit) []*datastore.Unit {
	if len(over) == 0 {
		return units
	}
	list := over[0].Node
	all := make([]*datastore.Unit, 0, len(units)+len(over))
	entries := slices.Clone(over)
	for _, u := range units {
		if u.Node != list {
			all = append(all, u)
		} else if _, hidden := slices.BinarySearchFunc(over, u, byKey); !hidden {
			entries = append(entries, u)
		}
	}
	if len(entries) > len(over) {
		slices.SortFunc(entries, byKey)
	}
	return append(all, entries...)
}

// anyForeign is the path of a foreign entry in a top container and what there is
// to say of it; says is empty where there is none.
func (s *Server) anyForeign(top *yang.Node) (at target, says string) {
	for _, list := range top.Children {
		f := s.foreign[list]
		if f == nil {
			continue
		}
		for key := f.Any(); key != ""; key = f.Any() { // one that has gone since then has nothing to say
			if says := f.Says(key); says != "" {
				return append(stepsTo(top), step{list, []string{key}}), says
			}
		}
	}
	return nil, ""
}

// hasForeign tells whether a foreign entry is in a top container, so that it is
// there although no client wrote it.
func (s *Server) hasForeign(top *yang.Node) bool {
	_, says := s.anyForeign(top)
	return says != ""
}

// refuseForeign fails where t is a foreign entry or lies in one.
func (s *Server) refuseForeign(t target) error {
	i := t.unit()
	if i < 0 {
		return nil
	}
	f := s.foreign[t[i].node]
	if f == nil {
		return nil
	}
	if says := f.Says(t[i].keys[0]); says != "" {
		return inUse(t[:i+1], says)
	}
	return nil
}

// refuseForeignIn fails where a foreign entry is among those that a client sent.
func (s *Server) refuseForeignIn(entries []*yang.Data) error {
	for _, entry := range entries {
		if err := s.refuseForeign(pathOf(entry)); err != nil {
			return err
		}
	}
	return nil
}

// withoutForeign are those of the entries of a new container that are not
// foreign. It fails where one is foreign and not as it is.
func (s *Server) withoutForeign(entries []*yang.Data) (own []*yang.Data, err error) {
	for _, entry := range entries {
		same, err := s.isForeign(entry)
		switch {
		case err != nil:
			return nil, err
		case same:
			continue
		}
		if err := s.refuseForeign(pathOf(entry)); err != nil {
			return nil, err
		}
		own = append(own, entry)
	}
	return own, nil
}

// isForeign tells whether a client sent a foreign entry as it is.
func (s *Server) isForeign(sent *yang.Data) (bool, error) {
	f := s.foreign[sent.Node]
	if f == nil {
		return false, nil
	}
	raw := f.Entry(sent.Key()[0])
	if raw == nil {
		return false, nil
	}
	there, err := yang.DecodeObject(raw, sent.Node)
	if err != nil {
		return false, err
	}
	var a, b bytes.Buffer
	yang.EncodeObject(&a, there)
	yang.EncodeObject(&b, sent)
	return bytes.Equal(a.Bytes(), b.Bytes()), nil
}

// pathOf is the path of an entry that is a unit.
func pathOf(entry *yang.Data) target {
	return append(stepsTo(entry.Node.Parent), stepOf(entry))
}

func inUse(t target, says string) error {
	return &yang.Error{Type: "application", Tag: "in-use", Path: t.path(), Message: says}
}
