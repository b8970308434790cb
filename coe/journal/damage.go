package journal

import (
	"errors"
	"maps"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe"
)

// Damage has the flaws of damaged records, by key.
type Damage map[string]Flaw

// Flaw is the reason why a record is damaged.
type Flaw struct {
	Why string
	// UnknownKind is set for a record that this release must not replace or delete.
	UnknownKind bool
}

// Note adds a record, unless it is already known to be damaged.
func (d Damage) Note(record string, err error) {
	if _, known := d[record]; !known {
		d[record] = Flaw{err.Error(), errors.Is(err, errUnknownKind)}
	}
}

// Problems lists the damage, sorted.
func (d Damage) Problems() []coe.Problem {
	var all []coe.Problem
	for _, record := range slices.Sorted(maps.Keys(d)) {
		all = append(all, problem(record, d[record].Why))
	}
	return all
}

// problem returns the problem of a damaged record.
func problem(record, why string) coe.Problem {
	message := "the record in the datastore is set aside: " + why
	if why == errUnknownKind.Error() {
		message += "; a later release may have written it; delete it if none did"
	}
	return coe.Problem{Kind: "record", UID: record, Name: record, Reason: coe.RecordDamaged, Message: message}
}
