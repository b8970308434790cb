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

// ledger records all that the database ever reported of the ports of pods and nodes, and the
// errors in it: an address that two pods had, one after the other or both at once; an address
// that a living pod or node lost; and a row of a living pod or node that was deleted. It holds
// for bridges that give no address again (neverReuse), pods that stay on their nodes, and
// nodes that are not made again.
type ledger struct {
	cache.EventHandlerFuncs

	mu      sync.Mutex
	holders map[string]string // of addresses: pods' uids
	had     map[string]string // by pods' uids and names of nodes' ports: addresses
	hurt    map[string]error  // by these: what must not be while they live
	wrong   []error
}

// keepLedger notes what the rows are and how they change.
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
		return // what a node gave back others have at once
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

// ownerOf is the pod's uid, or the name of a node's port.
func ownerOf(p *nb.LogicalSwitchPort) string {
	if isNodePort(p) {
		return p.Name
	}
	return p.Options["iface-id-ver"]
}

// require requires that nothing went wrong, and no pod or node was hurt that there is.
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
