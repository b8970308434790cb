package kubernetes

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coe-bridge/coe-bridge/cmd/bridge"
	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
	kubetest "github.com/coe-bridge/coe-bridge/test/lab/kube"
)

// account is a service account for bridges, with its role. The verbs on endpoint slices are
// a parameter.
const account = kubetest.BridgeRole + `- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [%s]}
`

// TestAccess starts a bridge on clusters that it cannot read, for different reasons. The
// bridge reports the reason, tries again, and removes nothing that it wrote before.
func TestAccess(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kubetest.Config{RBAC: true}, 3, 2)
	load := kubetest.PodLoad{Count: 20, Namespaces: 2, Nodes: 3}
	_, err := w.MakePods(t.Context(), load)
	require.NoError(t, err)
	_, err = w.MakeServices(t.Context(), kubetest.ServiceLoad{Count: 4, Endpoints: 3, Namespaces: 2})
	require.NoError(t, err)
	require.NoError(t, w.Apply(t.Context(), fmt.Sprintf(account, "list, watch")))
	ledger := w.rows.keepLedger(t)
	dir := t.TempDir()
	b := w.serve(t, withDir(dir), neverReuse)
	w.awaitExact(t, b, converge)
	b.Stop()

	for _, test := range []struct {
		name string
		run  func(*testing.T, *world, string)
	}{
		{"API server is away at the start", testAway},
		{"credentials expire", testExpired},
		{"a verb is missing", testForbidden},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.run(t, w, dir)
			ledger.require(t, w)
		})
	}
}

// testAway starts a bridge while the API server is unreachable. A pod of RESTCONF gets its interface when
// the network policies of Kubernetes are known.
func testAway(t *testing.T, w *world, dir string) {
	const uid = "44444444-4444-4444-8444-444444444444"
	before := w.lines(t)
	twice, err := w.Client().CoreV1().Pods("ns-0").Get(t.Context(), "pod-0", metav1.GetOptions{})
	require.NoError(t, err)
	require.NoError(t, w.APIServer.Kill())
	var log journal
	b := w.serve(t, withLog(&log), withDir(dir), neverReuse, w.watched(t, w.Kubeconfig()))

	t.Cleanup(func() { // if the test fails, the next one has the same datastore
		for _, uid := range []string{uid, string(twice.UID)} {
			_, _, _ = b.Client().Do(context.Background(), http.MethodDelete, podPath(uid), nil)
		}
	})
	b.putPool(t, http.StatusCreated, "mine", "10.70.0.0/24", "")
	b.putPod(t, uid, "early", "mine", 0)
	b.putPod(t, string(twice.UID), "in-both", "ns-0", 2)
	await(t, converge, "status", func() error { return b.saysUnreachable(false) })
	require.ErrorContains(t, b.following("pods"), "the API server is unreachable")
	await(t, converge, "log", func() error { return log.has("WARN", "cannot watch Kubernetes", "is unreachable") })
	require.Error(t, log.has("ERROR"))
	require.Subset(t, w.lines(t), before)
	require.False(t, b.status().InSync)
	require.Error(t, w.hasPort("mine:early"), "a policy may isolate it")

	require.NoError(t, w.APIServer.Start(t.Context()))
	await(t, recovery, "in sync", b.inSync)
	require.Contains(t, w.podAddresses(t)["mine:early"].String(), "10.70.0.")
	await(t, converge, "log", func() error { return log.has("INFO", "watching Kubernetes again") })
	b.send(t, http.StatusOK, http.MethodDelete, podPath(uid), "")
	w.awaitExact(t, b, recovery)
	requireKubernetesWins(t, w, b, string(twice.UID))
	b.Stop()
}

// requireKubernetesWins requires that the bridge uses the pod from Kubernetes if both sources
// have it, and the pod from RESTCONF after Kubernetes has deleted its own.
func requireKubernetesWins(t *testing.T, w *world, b running, uid string) {
	t.Helper()
	require.Contains(t, b.send(t, http.StatusOK, http.MethodGet, podPath(uid), ""), `"pod-0"`)
	b.send(t, http.StatusConflict, http.MethodDelete, podPath(uid), "")
	w.remove(t, "pod-0")
	await(t, converge, "the pod of RESTCONF", func() error { return w.hasPodUID(t, "ns-0:in-both", uid) })
	require.Contains(t, b.send(t, http.StatusOK, http.MethodGet, podPath(uid), ""), "in-both")
	b.send(t, http.StatusOK, http.MethodDelete, podPath(uid), "")
	w.awaitExact(t, b, recovery)
}

// testExpired waits until the token of a bridge has expired, and writes another one to its
// kubeconfig.
func testExpired(t *testing.T, w *world, dir string) {
	token := func(lifetime time.Duration) string {
		token, err := w.ServiceAccountToken(t.Context(), "default", "bridge", lifetime)
		require.NoError(t, err)
		path, err := w.WriteKubeconfig(token)
		require.NoError(t, err)
		return path
	}
	var (
		b          running
		log        *journal
		kubeconfig string
		ends       time.Time // of the token
	)
	for lifetime, exact := 20*time.Second, false; !exact; lifetime *= 2 { // a busy machine can need longer than the token lives
		require.Less(t, lifetime, converge)
		log, kubeconfig, ends = &journal{}, token(lifetime), time.Now().Add(lifetime)
		b = w.serve(t, withLog(log), withDir(dir), neverReuse, w.watched(t, kubeconfig))
		w.agents.At(b.URL())
		await(t, converge, "the rows that the cluster requires, or the end of the token", func() error {
			err := b.inSync()
			if err == nil {
				err = w.exact(t, b)
			}
			if exact = err == nil; time.Now().After(ends) {
				return nil
			}
			return err
		})
		if !exact {
			b.Stop()
		}
	}
	before := w.lines(t)

	<-time.After(time.Until(ends))
	// An API server does not end watches when a token expires, and caches valid tokens.
	require.NoError(t, w.APIServer.Kill())
	require.NoError(t, w.APIServer.Start(t.Context()))
	await(t, converge, "status", func() error { return b.follows("pods", "the API server rejects the credentials", "kubeconfig") })
	await(t, converge, "log", func() error { return log.has("ERROR", "cannot watch Kubernetes", "rejects the credentials") })
	late := w.create(t, "late", kubetest.Node(0))
	require.ElementsMatch(t, before, w.lines(t))
	require.True(t, b.status().Complete, "a source that has been listed stays listed")

	require.NoError(t, os.Rename(token(time.Hour), kubeconfig))
	w.awaitExact(t, b, recovery)
	require.NoError(t, w.hasPort("ns-0:late"))
	require.NoError(t, log.has("INFO", "credentials for Kubernetes were replaced"))
	w.remove(t, late.Name)
	w.awaitExact(t, b, converge)
	b.Stop()
}

// testForbidden starts a bridge without the right to list one resource. Then the bridge can
// list the resource but not watch it, and then both.
func testForbidden(t *testing.T, w *world, dir string) {
	token, err := w.ServiceAccountToken(t.Context(), "default", "bridge", time.Hour)
	require.NoError(t, err)
	kubeconfig, err := w.WriteKubeconfig(token)
	require.NoError(t, err)
	require.NoError(t, w.Apply(t.Context(), fmt.Sprintf(account, "watch")))
	gone := w.create(t, "gone", kubetest.Node(1))
	first := w.serve(t, withDir(dir), neverReuse)
	w.awaitExact(t, first, converge)
	first.Stop()
	before := w.lines(t)

	var log journal
	b := w.serve(t, withLog(&log), withDir(dir), neverReuse, w.watched(t, kubeconfig))
	await(t, converge, "status", func() error {
		return b.follows("endpointslices", "does not allow the bridge to list endpointslices", "apply")
	})
	await(t, converge, "log", func() error { return log.has("ERROR", "cannot watch Kubernetes", "list endpointslices") })
	await(t, converge, "the other resources are followed", func() error { return b.following("pods") })
	w.remove(t, gone.Name)
	added := w.create(t, "added", kubetest.Node(2))
	await(t, converge, "a new pod is written", func() error { return w.hasPort("ns-0:added") })
	require.Subset(t, w.lines(t), before, "the bridge removes nothing while a resource is not listed")
	require.False(t, b.status().Complete)

	require.NoError(t, w.Apply(t.Context(), fmt.Sprintf(account, "list")))
	await(t, recovery, "status", func() error { return b.follows("endpointslices", "does not allow the bridge to watch endpointslices") })
	w.awaitExact(t, b, recovery)
	require.NoError(t, w.Apply(t.Context(), fmt.Sprintf(account, "list, watch")))
	await(t, recovery, "all resources are followed", func() error { return b.following("endpointslices") })
	require.NoError(t, w.Client().CoreV1().Services("ns-0").Delete(t.Context(), "service-0", metav1.DeleteOptions{}))
	w.remove(t, added.Name)
	w.awaitExact(t, b, recovery)
	b.Stop()
}

// following returns the reason in the status why a resource is not followed, or nil.
func (r running) following(resource string) error {
	for _, s := range r.status().Sources {
		for _, of := range s.Resources {
			if of.Name == resource && of.Problem != "" {
				return fmt.Errorf("%s: %s", resource, of.Problem)
			}
		}
	}
	return nil
}

// follows fails unless the status has a problem of a resource with these words.
func (r running) follows(resource string, words ...string) error {
	said := fmt.Sprint(r.following(resource))
	for _, word := range words {
		if !strings.Contains(said, word) {
			return fmt.Errorf("no %q in: %s", word, said)
		}
	}
	return nil
}

// journal keeps a log.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// withLog configures a bridge to log to a journal.
func withLog(j *journal) bridgetest.Option {
	return func(cfg *bridge.Config) { cfg.Log = slog.New(slog.NewTextHandler(j, nil)) }
}

// Write implements io.Writer.
func (j *journal) Write(text []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(text)
}

// has fails unless a line of a level has all of the words.
func (j *journal) has(level string, words ...string) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	for line := range strings.Lines(j.text.String()) {
		all := strings.Contains(line, "level="+level)
		for _, word := range words {
			all = all && strings.Contains(line, word)
		}
		if all {
			return nil
		}
	}
	return fmt.Errorf("no line of level %s with %q in: %s", level, words, j.text.String())
}
