// Package journal is the form in which choices are durable (docs/architecture.md, rule 8): the keys and the contents of records, the
// order in which changes reach the datastore, what a damaged record is, and the facts that standby replicas make of the records. It
// makes no choice: coe/ipam does.
package journal

import "context"

// Journal stores the records of choices.
type Journal interface {
	// Load returns every record.
	Load(ctx context.Context) (map[string][]byte, error)
	// Commit makes all changes durably, or none. After an error, the changes may have been
	// made or not.
	Commit(ctx context.Context, puts map[string][]byte, deletes []string) error
	// MaxOps returns the largest number of puts and deletes in one Commit.
	MaxOps() int
}
