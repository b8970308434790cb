package dhcppool

import (
	"cmp"
	"fmt"
)

// IDs gives each name an identifier from a range. It gives a released identifier again only
// after it has given all others.
type IDs struct {
	sequence *sequence[uint32]
	byName   map[string]uint32
	names    map[uint32]string
}

// NewIDs returns an allocator of the identifiers from..to, both included.
func NewIDs(from, to uint32) *IDs {
	step := func(v uint32) uint32 { return v + 1 }
	return &IDs{
		sequence: newSequence(from, to, step, cmp.Compare[uint32]),
		byName:   map[string]uint32{},
		names:    map[uint32]string{},
	}
}

// Get returns the name's identifier, and chooses one for a name that has none. It returns
// false if the range has no free identifier.
func (i *IDs) Get(name string) (uint32, bool) {
	if id, found := i.byName[name]; found {
		return id, true
	}
	id, found := i.sequence.take(func(id uint32) bool { _, used := i.names[id]; return !used })
	if found {
		i.set(name, id)
	}
	return id, found
}

// Restore records the identifier of a name. It may be outside the range: when a range changes,
// names keep their identifiers.
func (i *IDs) Restore(name string, id uint32) error {
	if other, used := i.names[id]; used && other != name {
		return fmt.Errorf("restore identifier %d of %q: %q has it", id, name, other)
	}
	if other, found := i.byName[name]; found && other != id {
		return fmt.Errorf("restore identifier %d of %q: it has %d", id, name, other)
	}
	i.set(name, id)
	return nil
}

func (i *IDs) set(name string, id uint32) { i.byName[name], i.names[id] = id, name }

// Release takes back the identifier of a name.
func (i *IDs) Release(name string) {
	id, found := i.byName[name]
	if !found {
		return
	}
	delete(i.byName, name)
	delete(i.names, id)
	i.sequence.giveBack(id)
}
