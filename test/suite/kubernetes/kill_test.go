package kubernetes

import (
	"context"
	"flag"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
	kubetest "github.com/coe-bridge/coe-bridge/test/lab/kube"
)

var kills = flag.Int("kills", 6, "number of rounds in which TestOutages kills the bridge, in each layout")

// A round of killBridge kills the bridge once, after a random time within these bounds.
const (
	churners = 4
	minChurn = 20 * time.Millisecond
	maxChurn = 800 * time.Millisecond
)

// killBridge kills a bridge with SIGKILL while pods and nodes are created and deleted. It starts the
// bridge again before these changes end.
func killBridge(t *testing.T, w *world, ledger *ledger, dir string) {
	p := bridgetest.Serve(t, "--data-dir", dir, "--backend", "ovn", "--ovn-nb", w.nb.Endpoint(), "--ovn-layout", string(w.layout),
		"--kubeconfig", w.Kubeconfig(), "--pool", podPool.String(), "--annotate-qps", "inf", "--address-reuse-delay", "1h",
		"--service-network", w.services.String())
	services := kubetest.ServiceLoad{Count: 30, Endpoints: 10, Namespaces: 5}
	for seed := range uint64(*kills) {
		random := rand.New(rand.NewPCG(seed, 0))
		ctx, enough := context.WithCancel(t.Context())
		ended := make(chan error, churners+1)
		go func() { ended <- w.churnNodes(ctx, rand.New(rand.NewPCG(seed, 0))) }()
		for worker := range churners {
			go func() { ended <- w.churn(ctx, worker, rand.New(rand.NewPCG(seed, uint64(worker+1)))) }()
		}
		after := minChurn + time.Duration(random.Int64N(int64(maxChurn-minChurn)))
		<-time.After(after)
		p.Kill()
		_, err := w.FlapEndpoints(t.Context(), services, int(seed))
		require.NoError(t, err)
		p.Start()
		enough()
		for range churners + 1 {
			require.NoError(t, <-ended)
		}
		begun := time.Now()
		w.awaitExact(t, running{p.Bridge()}, recovery)
		ledger.require(t, w)
		t.Logf("seed %d: killed after %s, in sync %s after the last change", seed, after, time.Since(begun))
	}
}

// churn creates and deletes pods until ctx is done. Some pods have a name that was used before.
func (w *world) churn(ctx context.Context, worker int, random *rand.Rand) error {
	load := kubetest.PodLoad{Namespaces: 5, Nodes: 20, Prefix: "churn-"}
	for ctx.Err() == nil {
		pod := load.Pod(worker*20 + random.IntN(20))
		pod.Spec.NodeName = kubetest.Node(random.IntN(20))
		pods := w.Client().CoreV1().Pods(pod.Namespace)
		_, err := pods.Get(context.Background(), pod.Name, metav1.GetOptions{})
		if err == nil {
			err = w.deletePod(context.Background(), pod)
		} else {
			_, err = pods.Create(context.Background(), pod, metav1.CreateOptions{})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// churnNodes creates and removes nodes without pods until ctx is done. Then it removes the remaining
// ones.
func (w *world) churnNodes(ctx context.Context, random *rand.Rand) error {
	const first, most = 20, 4
	there := map[int]bool{}
	for ctx.Err() == nil || len(there) > 0 {
		n := first + random.IntN(most)
		switch {
		case there[n]:
			if err := w.Client().CoreV1().Nodes().Delete(context.Background(), kubetest.Node(n), metav1.DeleteOptions{}); err != nil {
				return err
			}
			delete(there, n)
		case ctx.Err() == nil:
			if err := w.makeNode(context.Background(), n, ""); err != nil {
				return err
			}
			there[n] = true
		}
	}
	return nil
}
