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

// ledger is what the database ever said of pods' ports, and what of that must not
// be: an address that two pods had, one after the other or both at once, and an
// address that a pod had and then had no more. It holds for bridges that give no
// address again (neverReuse), and pods that stay on their nodes.
type ledger struct {
	cache.EventHandlerFuncs

	mu      sync.Mutex
	holders map[string]string // of addresses: pods' uids
	had     map[string]string // by pods' uids: addresses
	gone    map[string]bool   // pods' uids whose rows were deleted
	wrong   []error
}

// keepLedger notes what the rows are and how they change.
func (r rows) keepLedger(t *testing.T) *ledger {
	t.Helper()
	l := &ledger{holders: map[string]string{}, had: map[string]string{}, gone: map[string]bool{}}
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
	uid, has := p.Options["iface-id-ver"], strings.Join(p.Addresses, ", ")
	if before, known := l.had[uid]; known && before != has {
		l.wrong = append(l.wrong, fmt.Errorf("%s of pod %s had %q, and now %q", p.Name, uid, before, has))
	}
	l.had[uid] = has
	for _, word := range strings.Fields(has) {
		if other := l.holders[word]; other != "" && other != uid {
			l.wrong = append(l.wrong, fmt.Errorf("%s of pod %s has %s, which pod %s had", p.Name, uid, word, other))
		}
		l.holders[word] = uid
	}
}

func (l *ledger) remove(row model.Model) {
	if p, isPort := row.(*nb.LogicalSwitchPort); isPort && p.Type == "" {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.gone[p.Options["iface-id-ver"]] = true
	}
}

// require requires that nothing went wrong, and that no pod that there is has ever
// lost its row.
func (l *ledger) require(t *testing.T, w *world) {
	t.Helper()
	f, err := list(t.Context(), w.Client())
	require.NoError(t, err)
	l.mu.Lock()
	defer l.mu.Unlock()
	errs := slices.Clone(l.wrong)
	for i := range f.pods {
		if p := &f.pods[i]; l.gone[string(p.UID)] {
			errs = append(errs, fmt.Errorf("the row of pod %s/%s (%s), which lives, was deleted", p.Namespace, p.Name, p.UID))
		}
	}
	require.NoError(t, shortened(errors.Join(errs...)))
}
