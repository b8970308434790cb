package kubernetes

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
)

// ledger records all changes of the ports of pods and nodes in the database, and detects errors. It is
// an error if two pods had the same address, at the same time or one after the other; if an existing
// pod or node lost an address; or if the row of an existing pod or node was deleted. The bridges must
// not give an address again (neverReuse), pods must stay on their nodes, and nodes must not be created
// again.
type ledger struct {
	cache.EventHandlerFuncs

	mu      sync.Mutex
	holders map[string]string // UIDs of pods, by address
	had     map[string]string // addresses, by UID of the pod or name of the node's port
	hurt    map[string]error  // errors if the pod or node still exists, by the same keys
	wrong   []error
}

// keepLedger records the rows and their changes.
func (r rows) keepLedger(t *testing.T) *ledger {
	t.Helper()
	l := &ledger{holders: map[string]string{}, had: map[string]string{}, hurt: map[string]error{}}
	l.AddFunc = func(_ string, row model.Model) { l.note(row) }
	l.UpdateFunc = func(_ string, _, row model.Model) { l.note(row) }
	l.DeleteFunc = func(_ string, row model.Model) { l.remove(row) }
	r.Cache().AddEventHandler(l)
	now, err := r.read(t.Context())
	require.NoError(t, err)
	for i := range now.ports {
		l.note(&now.ports[i])
	}
	return l
}

func (l *ledger) note(row model.Model) {
	p, isPort := row.(*nb.LogicalSwitchPort)
	if !isPort || p.Type != "" {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	who, has := ownerOf(p), strings.Join(p.Addresses, ", ")
	if before, known := l.had[who]; known && before != has {
		l.hurt[who] = fmt.Errorf("%s of %s had %q, and now %q", p.Name, who, before, has)
	}
	if l.had[who] = has; isNodePort(p) {
		return // addresses of deleted nodes do not rest
	}
	for _, word := range strings.Fields(has) {
		if other := l.holders[word]; other != "" && other != who {
			l.wrong = append(l.wrong, fmt.Errorf("%s of %s has %s, which %s had", p.Name, who, word, other))
		}
		l.holders[word] = who
	}
}

func (l *ledger) remove(row model.Model) {
	if p, isPort := row.(*nb.LogicalSwitchPort); isPort && p.Type == "" {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.hurt[ownerOf(p)] = fmt.Errorf("row %s of %s was deleted", p.Name, ownerOf(p))
	}
}

// ownerOf returns the UID of the pod, or the name of the node's port.
func ownerOf(p *nb.LogicalSwitchPort) string {
	if isNodePort(p) {
		return p.Name
	}
	return p.Options["iface-id-ver"]
}

// require requires that there was no error, and none of those errors that count for existing pods and
// nodes.
func (l *ledger) require(t *testing.T, w *world) {
	t.Helper()
	f, err := list(t.Context(), w.Client())
	require.NoError(t, err)
	l.mu.Lock()
	defer l.mu.Unlock()
	errs := slices.Clone(l.wrong)
	for i := range f.pods {
		errs = append(errs, l.hurt[string(f.pods[i].UID)])
	}
	for _, node := range f.nodes {
		errs = append(errs, l.hurt["node:"+node.String()+":management"])
	}
	require.NoError(t, shortened(errors.Join(errs...)))
}
