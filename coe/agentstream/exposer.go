package agentstream

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/coe-bridge/coe-bridge/coe"
)

// Exposer keeps the records of the ports that services have on nodes. The leader runs one, and marks
// every namespace once its claims are made. Nothing waits for an Exposer.
type Exposer struct {
	journal Journal
	source  ExposedSource
	log     *slog.Logger
	wake    chan struct{}

	mu     sync.Mutex
	marked map[string]bool // namespaces
	served map[string]bool // namespaces that may have ports or records

	// The fields below belong to Run: the records in the journal by name, and their names by
	// namespace.
	records map[string]exposedRecord
	names   map[string]map[string]bool
}

// exposedRecord is a record in the journal.
type exposedRecord struct {
	namespace string
	value     digest
}

// ExposedSource is where an Exposer gets the ports from.
type ExposedSource struct {
	// HasServices reports whether a namespace has services. Without, it has no ports.
	HasServices func(namespace string) bool
	// Ports returns the ports of the services of a namespace. Two namespaces never have the same
	// port.
	Ports func(namespace string) []coe.ExposedPort
	// Complete reports whether what is absent is gone. Until then the Exposer creates records, and
	// neither changes nor deletes any.
	Complete func() bool
}

// NewExposer returns an Exposer. The journal has the records below ExposedRecords.
func NewExposer(journal Journal, source ExposedSource, log *slog.Logger) *Exposer {
	return &Exposer{journal: journal, source: source, log: log, wake: make(chan struct{}, 1), marked: map[string]bool{}, served: map[string]bool{}}
}

// Mark schedules a comparison of the ports of namespaces with their records. It ignores namespaces that
// have neither services nor records, because every changed pod marks its namespace.
func (e *Exposer) Mark(namespaces ...string) {
	e.mu.Lock()
	for _, ns := range namespaces {
		if e.served[ns] || e.source.HasServices(ns) {
			e.served[ns], e.marked[ns] = true, true
		}
	}
	wake := len(e.marked) > 0
	e.mu.Unlock()
	if !wake {
		return
	}
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// remark marks namespaces until the next Mark.
func (e *Exposer) remark(namespaces ...string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, ns := range namespaces {
		e.served[ns], e.marked[ns] = true, true
	}
}

// forget lets Mark ignore a namespace without ports and records, unless it was marked meanwhile.
func (e *Exposer) forget(namespace string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.marked[namespace] {
		delete(e.served, namespace)
	}
}

// Run keeps the records until ctx is done. It repeats failed writes.
func (e *Exposer) Run(ctx context.Context) {
	for ctx.Err() == nil {
		err := e.keep(ctx)
		if ctx.Err() != nil {
			return
		}
		e.log.Error("could not write the node ports of services; retrying", "err", err)
		pause(ctx, retryAfter)
	}
}

// keep loads the records, and keeps them until an error. It marks the namespaces of all records: one
// whose services are gone may be unknown.
func (e *Exposer) keep(ctx context.Context) error {
	if err := e.load(ctx); err != nil {
		return err
	}
	e.remark(slices.Collect(maps.Keys(e.names))...)
	e.Mark()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-e.wake:
		}
		if err := e.write(ctx, e.take()); err != nil {
			return err
		}
		pause(ctx, gather) // the first change is written at once, and those that follow are collected
	}
}

// load reads the records. One that cannot be read belongs to the namespace "", which has no services.
func (e *Exposer) load(ctx context.Context) error {
	records, err := e.journal.Load(ctx)
	if err != nil {
		return fmt.Errorf("load node ports of services: %w", err)
	}
	e.records, e.names = map[string]exposedRecord{}, map[string]map[string]bool{}
	for name, value := range records {
		var p coe.ExposedPort
		if json.Unmarshal(value, &p) != nil || p.Name() != name {
			p.Namespace = ""
		}
		e.note(name, exposedRecord{p.Namespace, digestOf(value)})
	}
	return nil
}

func (e *Exposer) take() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	namespaces := slices.Sorted(maps.Keys(e.marked))
	clear(e.marked)
	return namespaces
}

// write updates the records of namespaces. After an error it marks them again. A namespace with
// records that must not be changed yet is marked for the next write.
func (e *Exposer) write(ctx context.Context, namespaces []string) error {
	complete := e.source.Complete() // before the ports: what they lack is gone
	puts, wanted := map[string][]byte{}, map[string]exposedRecord{}
	for _, ns := range namespaces {
		for _, p := range e.portsOf(ns) {
			value, err := json.Marshal(p)
			if err != nil {
				return fmt.Errorf("encode node port %s of namespace %s: %w", p.Name(), ns, err)
			}
			want := exposedRecord{ns, digestOf(value)}
			wanted[p.Name()] = want
			switch has, exists := e.records[p.Name()]; {
			case has == want:
			case exists && !complete:
				e.remark(ns)
			default:
				puts[p.Name()] = value
			}
		}
	}
	var deletes []string
	for _, ns := range namespaces {
		for name := range e.names[ns] {
			switch _, stays := wanted[name]; {
			case stays: // in this namespace or in another one
			case !complete:
				e.remark(ns)
			default:
				deletes = append(deletes, name)
			}
		}
	}
	slices.Sort(deletes)
	for _, part := range split(puts, deletes, min(e.journal.MaxOps(), maxOps)) {
		if err := e.journal.Commit(ctx, part.puts, part.deletes); err != nil {
			e.remark(namespaces...)
			return fmt.Errorf("write node ports of services: %w", err)
		}
		for name := range part.puts {
			e.note(name, wanted[name])
		}
		for _, name := range part.deletes {
			e.note(name, exposedRecord{})
		}
	}
	return nil
}

// portsOf returns the ports of a namespace. Mark ignores a namespace without ports and records from then on.
func (e *Exposer) portsOf(ns string) []coe.ExposedPort {
	ports := e.source.Ports(ns)
	if len(ports) == 0 && len(e.names[ns]) == 0 {
		e.forget(ns)
	}
	return ports
}

// note updates the local copy of a record; the zero value deletes it.
func (e *Exposer) note(name string, r exposedRecord) {
	if had, exists := e.records[name]; exists {
		delete(e.records, name)
		if delete(e.names[had.namespace], name); len(e.names[had.namespace]) == 0 {
			delete(e.names, had.namespace)
		}
	}
	if r == (exposedRecord{}) {
		return
	}
	e.records[name] = r
	if e.names[r.namespace] == nil {
		e.names[r.namespace] = map[string]bool{}
	}
	e.names[r.namespace][name] = true
}
