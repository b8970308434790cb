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

// loseDatastore starts a bridge that remembers nothing: first beside a database
// that has the rows of the last one, which an operator has to hand over, then beside
// one that has none. Pods that live keep their
// addresses: by the rows, and where these are lost too, by what their status says.
func loseDatastore(t *testing.T, w *world, ledger *ledger) {
	before := w.lines(t)
	lost := w.serve(t, neverReuse)
	await(t, converge, "it is said what to do with the rows of the lost datastore's bridge", func() error {
		if s := lost.status(); !strings.Contains(s.ClaimsError, "remove coe-bridge/epoch from NB_Global's external_ids") {
			return fmt.Errorf("status %+v", s)
		}
		return nil
	})
	require.ElementsMatch(t, before, w.lines(t), "rows of another bridge, as far as is known")
	snapshot := lost.followNode(t, kubetest.NodeAddress(0))
	w.nb.NBCtl(t, "remove", "NB_Global", ".", "external_ids", "coe-bridge/epoch")
	w.awaitExact(t, lost, recovery)
	ledger.require(t, w)
	first := snapshot()
	require.Contains(t, first, "coe-agent:node-changed", "the node is not told that it has no place")
	require.Contains(t, first, "coe-agent:interface-changed", "nor that its pods have no interfaces")

	had := w.podAddresses(t)
	require.NotEmpty(t, had)
	said := map[string]netip.Addr{} // every other pod's status
	for name, address := range had {
		if address.As4()[3]%2 == 0 {
			said[name] = address
		}
	}
	w.sayAddresses(t, said)
	w.awaitExact(t, lost, converge)
	ledger.require(t, w)
	lost.Stop()

	w.newBackend(t)
	b := w.serve(t, neverReuse)
	// If the blocks differ from the former ones, an address may need its own route. So the rows may
	// differ from those of new pods.
	await(t, recovery, "all pods have an address", func() error {
		if n := len(w.podAddresses(t)); n != len(had) {
			return fmt.Errorf("%d of %d pods", n, len(had))
		}
		return b.inSync()
	})
	holders := map[netip.Addr]string{}
	for name, address := range w.podAddresses(t) {
		require.Empty(t, holders[address], "who has %s beside %s", address, name)
		holders[address] = name
	}
	for name, address := range said {
		require.Equal(t, name, holders[address], "who has %s, which the status of a pod says", address)
	}
}

// followNode opens the stream of a node's agent, and returns what waits for its first
// group of events.
func (r running) followNode(t *testing.T, node netip.Addr) (snapshot func() string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), recovery)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.URL()+"/rests/streams/node-interfaces="+node.String(), http.NoBody)
	require.NoError(t, err)
	request.SetBasicAuth(bridgetest.User, bridgetest.Password)
	request.Header.Set("Accept", "text/event-stream")
	answer, err := http.DefaultClient.Do(request) //nolint:bodyclose // who waits closes it
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

// podAddresses are the addresses of pods' ports, by the ports' names.
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

// sayAddresses says the addresses in the status of pods, as their kubelet does.
func (w *world) sayAddresses(t *testing.T, said map[string]netip.Addr) {
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
