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
// be: an address that two pods had, one after the other or both at once; and of a
// pod that lives, an address that it had no more, and a row that was deleted. It
// holds for bridges that give no address again (neverReuse), and pods that stay on
// their nodes.
type ledger struct {
	cache.EventHandlerFuncs

	mu      sync.Mutex
	holders map[string]string // of addresses: pods' uids
	had     map[string]string // by pods' uids: addresses
	hurt    map[string]error  // by pods' uids: what must not be while they live
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
	uid, has := p.Options["iface-id-ver"], strings.Join(p.Addresses, ", ")
	if before, known := l.had[uid]; known && before != has {
		l.hurt[uid] = fmt.Errorf("%s of pod %s had %q, and now %q", p.Name, uid, before, has)
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
		uid := p.Options["iface-id-ver"]
		l.hurt[uid] = fmt.Errorf("row %s of pod %s was deleted", p.Name, uid)
	}
}

// require requires that nothing went wrong, and no pod was hurt that there is.
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
	require.NoError(t, shortened(errors.Join(errs...)))
}
