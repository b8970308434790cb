package kubernetes

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
	kubetest "github.com/coe-bridge/coe-bridge/test/lab/kube"
)

// loseDatastore starts bridges with an empty datastore. The northbound database of the first
// one has the rows of the previous bridge, and an operator hands them over. The database of
// the second one is empty. Running pods keep their addresses: the first bridge reads them from
// the rows, and the second one from the status of the pods.
func loseDatastore(t *testing.T, w *world, ledger *ledger) {
	before := w.lines(t)
	lost := w.serve(t, neverReuse)
	await(t, converge, "the status says what to do with the rows of the previous bridge", func() error {
		if s := lost.status(); !strings.Contains(s.ClaimsError, "remove coe-bridge/epoch from NB_Global's external_ids") {
			return fmt.Errorf("status %+v", s)
		}
		return nil
	})
	require.ElementsMatch(t, before, w.lines(t), "without an epoch in the datastore, the rows may belong to another bridge")
	snapshot := lost.followNode(t, kubetest.NodeAddress(0))
	w.nb.NBCtl(t, "remove", "NB_Global", ".", "external_ids", "coe-bridge/epoch")
	w.awaitExact(t, lost, recovery)
	ledger.require(t, w)
	first := snapshot()
	require.Contains(t, first, "coe-agent:node-changed", "the first snapshot has the record of the node")
	require.Contains(t, first, "coe-agent:interface-changed", "the first snapshot has the interfaces of the pods")

	had := w.podAddresses(t)
	require.NotEmpty(t, had)
	said := map[string]netip.Addr{} // every other pod's status
	for name, address := range had {
		if address.As4()[3]%2 == 0 {
			said[name] = address
		}
	}
	w.setPodAddresses(t, said)
	w.awaitExact(t, lost, converge)
	ledger.require(t, w)
	lost.Stop()

	w.newBackend(t)
	b := w.serve(t, neverReuse)
	// If the blocks differ from the former ones, an address may need its own route. So the rows of
	// these pods can differ from the rows of new pods.
	await(t, recovery, "all pods have an address", func() error {
		if n := len(w.podAddresses(t)); n != len(had) {
			return fmt.Errorf("%d of %d pods", n, len(had))
		}
		return b.inSync()
	})
	holders := map[netip.Addr]string{}
	for name, address := range w.podAddresses(t) {
		require.Empty(t, holders[address], "another pod than %[2]s has %[1]s", address, name)
		holders[address] = name
	}
	for name, address := range said {
		require.Equal(t, name, holders[address], "the pod whose status has %s", address)
	}
}

// followNode opens the stream of a node's agent. The returned function waits for the first
// group of events and returns it.
func (r running) followNode(t *testing.T, node netip.Addr) (snapshot func() string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), converge)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.URL()+"/rests/streams/node-interfaces="+node.String(), http.NoBody)
	require.NoError(t, err)
	request.SetBasicAuth(bridgetest.User, bridgetest.Password)
	request.Header.Set("Accept", "text/event-stream")
	answer, err := http.DefaultClient.Do(request) //nolint:bodyclose // snapshot closes it
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, answer.StatusCode)
	return func() string {
		defer cancel()
		defer func() { _ = answer.Body.Close() }()
		var text strings.Builder
		for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
			text.WriteString(lines.Text() + "\n")
			if strings.HasPrefix(lines.Text(), "id:") {
				return text.String()
			}
		}
		require.Fail(t, "the stream has ended before a group was complete", text.String())
		return ""
	}
}

// podAddresses returns the addresses of the ports of pods, by the name of the port.
func (w *world) podAddresses(t *testing.T) map[string]netip.Addr {
	t.Helper()
	now, err := w.rows.read(t.Context())
	require.NoError(t, err)
	out := map[string]netip.Addr{}
	for i := range now.ports {
		if p := &now.ports[i]; isPodPort(p) {
			_, address, _ := strings.Cut(p.Addresses[0], " ")
			out[p.Name] = netip.MustParseAddr(address)
		}
	}
	return out
}

// setPodAddresses writes addresses to the status of pods, as their kubelets do.
func (w *world) setPodAddresses(t *testing.T, said map[string]netip.Addr) {
	t.Helper()
	names := slices.Collect(maps.Keys(said))
	_, err := kubetest.Each(t.Context(), len(names), kubetest.Workers, func(ctx context.Context, i int) error {
		namespace, name, _ := strings.Cut(names[i], ":")
		return w.SetPodStatus(ctx, namespace, name, kubetest.PodStatus{
			Phase: corev1.PodRunning, Addresses: []netip.Addr{said[names[i]]}, Ready: true,
		})
	})
	require.NoError(t, err)
}
