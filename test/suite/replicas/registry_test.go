package replicas

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// The keys of the replicas in etcd.
const (
	rootPrefix     = "/coe-bridge/v1/"
	podPrefix      = rootPrefix + "config/pod:coe/pods="
	recordsPrefix  = rootPrefix + "records/"
	leasePrefix    = recordsPrefix + "chosen/lease/"
	electionPrefix = rootPrefix + "election/"
)

// registry watches the pods and the leases in etcd. No address is given twice, and no lease of an
// existing pod is changed, released or deleted, not even for a moment.
type registry struct {
	cancel context.CancelFunc
	done   chan struct{}
	wrong  []string
	leases int // number of events of leases

	pods   map[string]bool       // UIDs of existing pods
	holder map[netip.Addr]string // UIDs of pods, by address
	given  map[string]netip.Addr // addresses, by UID of the pod
}

// watchLeases watches until end is called.
func watchLeases(t *testing.T, e *cluster) *registry {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	g := &registry{
		cancel: cancel, done: make(chan struct{}),
		pods: map[string]bool{}, holder: map[netip.Addr]string{}, given: map[string]netip.Addr{},
	}
	events := e.client().Watch(ctx, rootPrefix, clientv3.WithPrefix(), clientv3.WithRev(1))
	go func() {
		defer close(g.done)
		for answer := range events {
			for _, event := range answer.Events {
				g.note(event)
			}
		}
	}()
	return g
}

func (g *registry) note(event *clientv3.Event) {
	key, deleted := string(event.Kv.Key), event.Type == clientv3.EventTypeDelete
	if uid, found := strings.CutPrefix(key, podPrefix); found {
		g.pods[uid] = !deleted
		return
	}
	name, found := strings.CutPrefix(key, leasePrefix)
	if !found {
		return
	}
	g.leases++
	if !deleted {
		g.lease(event.Kv.Value)
	} else if uid, _, _ := strings.Cut(name, "/"); g.pods[uid] {
		g.fail("the lease of %s is deleted, but the pod exists", uid)
	}
}

func (g *registry) lease(value []byte) {
	var l struct {
		PodUID    string `json:"pod-uid"`
		Released  int64  `json:"released"`
		Addresses []struct {
			Address netip.Addr `json:"address"`
		} `json:"addresses"`
	}
	if err := json.Unmarshal(value, &l); err != nil {
		g.fail("read a lease: %s", err)
		return
	}
	if l.Released != 0 && g.pods[l.PodUID] {
		g.fail("the lease of %s is released, but the pod exists", l.PodUID)
	}
	for _, a := range l.Addresses {
		if other := g.holder[a.Address]; other != "" && other != l.PodUID {
			g.fail("%s belonged to %s and now belongs to %s", a.Address, other, l.PodUID)
		}
		if before, found := g.given[l.PodUID]; found && before != a.Address {
			g.fail("%s had %s and has %s", l.PodUID, before, a.Address)
		}
		g.holder[a.Address], g.given[l.PodUID] = l.PodUID, a.Address
	}
}

func (g *registry) fail(format string, args ...any) {
	g.wrong = append(g.wrong, fmt.Sprintf(format, args...))
}

// end ends the watch, and requires that there was no error.
func (g *registry) end(t *testing.T) {
	t.Helper()
	g.cancel()
	<-g.done
	require.NotEmpty(t, g.pods)
	require.Positive(t, g.leases)
	require.Empty(t, g.wrong)
}
