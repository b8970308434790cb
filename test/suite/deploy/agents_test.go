package deploy

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coe-bridge/coe-bridge/cni/uplink"
	"github.com/coe-bridge/coe-bridge/test/lab/kube"
)

const (
	agentAccount  = "coe-bridge-agent"
	agentAudience = "coe-bridge"
	posted        = "c0e00000-c0e0-4000-8000-00000000000"
)

// newPlaneWithAgents returns an API server with the bridge's manifests. Each of two nodes has a pod
// of the agent.
func newPlaneWithAgents(t *testing.T) *watched {
	t.Helper()
	plane := kube.ForTest(t, kube.Config{RBAC: true})
	_, err := plane.Kubectl(t.Context(), "apply", "--server-side", "-k", root+"/deploy/kubernetes/bridge")
	require.NoError(t, err)
	w := &watched{plane}
	for _, name := range []string{"served", "other"} {
		_, err := plane.Client().CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	for _, n := range nodes[:2] {
		_, err := plane.Client().CoreV1().Nodes().Create(t.Context(), newNode(n.name, n.address), metav1.CreateOptions{})
		require.NoError(t, err)
		w.agentPod(t, n.name)
	}
	return w
}

func (w *watched) agentPod(t *testing.T, node string) {
	t.Helper()
	pod := newPod("agent-"+node, node)
	pod.Spec.ServiceAccountName, pod.Spec.HostNetwork = agentAccount, true
	_, err := w.Client().CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	require.NoError(t, err)
}

// token returns the token that kubelet would project into a pod: a token of the pod's account,
// bound to the pod.
func (w *watched) token(t *testing.T, account, audience, pod string) string {
	t.Helper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{audience}}}
	if pod != "" {
		p, err := w.Client().CoreV1().Pods(namespace).Get(t.Context(), pod, metav1.GetOptions{})
		require.NoError(t, err)
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod, UID: p.UID}
	}
	answer, err := w.Client().CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), account, request, metav1.CreateOptions{})
	require.NoError(t, err)
	return answer.Status.Token
}

// bearer sends a request with a token to a bridge, and returns the status and the body.
func bearer(t *testing.T, b *watcher, token, method, path, body string) (status int, answer string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, b.Bridge().URL()+path, strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/yang-data+json")
	got, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer func() { _ = got.Body.Close() }()
	text := make([]byte, 4<<10)
	n, _ := got.Body.Read(text) // the first event, if the body is a stream
	return got.StatusCode, string(text[:n])
}

func streamOf(node int) string { return "/rests/streams/node-interfaces=" + nodes[node].address }

// serveAgents is serve for a bridge that accepts tokens of agents, and knows the nodes.
func (w *watched) serveAgents(t *testing.T, account string) *watcher {
	t.Helper()
	b := w.serve(t, account, "--agent-service-account="+namespace+"/"+agentAccount, "--pool", "10.12.0.0/16", "--annotate-qps=0")
	b.inSync(t)
	return b
}

// An agent proves by its token that it belongs to a node. The bridge has the rights of the manifests.
// The agent can follow the stream of its node and delete pods of its node, and nothing else.
func TestAgentsByToken(t *testing.T) {
	t.Parallel()
	w := newPlaneWithAgents(t)
	b := w.serveAgents(t, "coe-bridge")
	first := w.token(t, agentAccount, agentAudience, "agent-"+nodes[0].name)
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte(first), 0o600))
	agent, err := uplink.New(uplink.Config{
		URLs: []string{b.Bridge().URL()}, Node: netip.MustParseAddr(nodes[0].address), TokenFile: file, Dir: dir, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	require.NoError(t, err)
	follow(t, agent)

	err = agent.Post(t.Context(), uplink.Pod{UID: posted + "9", InterfaceUID: posted + "9", Namespace: "served", Name: "made"})
	require.ErrorContains(t, err, "must not create pods: Kubernetes creates them")
	status, answer := b.Bridge().Do(http.MethodPost, "/rests/data/pod:coe", strings.Replace(entityOn(posted+"1", nodes[0].address), `"p-1"`, `"mine"`, 1))
	require.Equal(t, http.StatusCreated, status, answer)
	within, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err = agent.Await(within, func(r *uplink.Record) bool { return r.Pod == "mine" })
	require.NoError(t, err)
	says, err := agent.Problem(t.Context(), "served", posted+"1")
	require.NoError(t, err)
	require.NotContains(t, says, "agent", "the stream has no record of the agent's own pod")

	t.Run("another node's", func(t *testing.T) { w.reachesNothingElse(t, b, first) })
	t.Run("other tokens", func(t *testing.T) { w.refusesOtherTokens(t, b) })
	t.Run("a token that is rotated", func(t *testing.T) {
		require.NoError(t, os.WriteFile(file, []byte("not yet written as a whole"), 0o600))
		require.ErrorContains(t, agent.Delete(t.Context(), posted+"1"), "401")
		require.NoError(t, os.WriteFile(file, []byte(w.token(t, agentAccount, agentAudience, "agent-"+nodes[0].name)+"\n"), 0o600))
		require.NoError(t, agent.Delete(t.Context(), posted+"1"))
	})
	t.Run("a pod that is gone", func(t *testing.T) {
		gone := w.token(t, agentAccount, agentAudience, "agent-"+nodes[1].name)
		status, _ := bearer(t, b, gone, http.MethodGet, streamOf(1), "")
		require.Equal(t, http.StatusOK, status)
		require.NoError(t, w.Client().CoreV1().Pods(namespace).Delete(t.Context(), "agent-"+nodes[1].name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
		require.Eventually(t, func() bool {
			status, _ := bearer(t, b, gone, http.MethodGet, streamOf(1), "")
			return status == http.StatusUnauthorized
		}, patience+time.Minute, time.Second, "the token is refused when the cached review has expired, after a minute")
	})
	require.False(t, b.Log().Says(0, first), "no token is logged")
	require.False(t, b.Log().Says(0, strings.Split(first, ".")[2]))
}

func follow(t *testing.T, u *uplink.Uplink) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { u.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	require.Eventually(t, func() bool { return u.Status().Synced }, patience, poll, "the agent follows its node: %v", u.Status().Err)
}

// reachesNothingElse tries requests of the first node's agent for data of the second node, and for
// data of all nodes.
func (w *watched) reachesNothingElse(t *testing.T, b *watcher, token string) {
	theirs := b.post(t, "2", nodes[1].address)
	_, err := w.Client().CoreV1().Pods("served").Create(t.Context(), newPod("kubernetes-one", nodes[1].name), metav1.CreateOptions{})
	require.NoError(t, err)
	kubernetesOne := w.uid(t, "served", "kubernetes-one")
	pods := "/rests/data/pod:coe"
	require.Eventually(t, func() bool {
		status, _ := b.Bridge().Do(http.MethodGet, pods+"/pods="+kubernetesOne, "")
		return status == http.StatusOK
	}, patience, poll, "the bridge has read the pod")
	for _, c := range []struct{ method, path, body string }{
		{"GET", streamOf(1), ""},
		{"GET", "/rests/streams/xml/node-interfaces=" + nodes[0].address, ""},
		{"GET", "/rests/streams/changes", ""},
		{"GET", "/rests/streams/node-interfaces=10%2e0.0.12", ""},
		{"GET", "//rests/streams/node-interfaces=" + nodes[1].address, ""},
		{"POST", pods, entityOn(posted+"3", nodes[1].address)},
		{"POST", pods, entitiesOn(posted+"4", nodes[0].address, posted+"5", nodes[1].address)},
		{"POST", pods, `{"pod:pods":[{"uid":"` + posted + `6"}]}`},
		{"POST", pods + "?insert=first", entityOn(posted+"3", nodes[0].address)},
		{"POST", "/rests/data", `{"pod:coe":` + entityOn(posted+"3", nodes[0].address) + "}"},
		{"POST", "/restconf/config/pod:coe", entityOn(posted+"3", nodes[0].address)},
		{"POST", "/rests/data/service:service-information", `{"service:services":[{"uid":"` + posted + `7"}]}`},
		{"PUT", pods + "/pods=" + posted + "1", entityOn(posted+"1", nodes[0].address)},
		{"PATCH", pods + "/pods=" + posted + "1", entityOn(posted+"1", nodes[0].address)},
		{"DELETE", pods + "/pods=" + theirs, ""},
		{"DELETE", pods + "/pods=" + theirs + "/interface=" + theirs, ""},
		{"DELETE", pods + "/pods=" + kubernetesOne, ""},
		{"DELETE", pods, ""},
		{"GET", pods, ""}, {"GET", pods + "/pods=" + theirs, ""}, {"GET", pods + "/pods=" + posted + "1", ""},
		{"GET", "/rests/data/coe-status:pods/namespace=served/pod=" + theirs, ""},
		{"GET", "/rests/data/coe-status:pods/namespace=other/pod=" + posted + "1", ""},
		{"GET", "/rests/data/coe-status:pods/namespace=served", ""},
		{"GET", "/rests/data/coe-status:status", ""}, {"GET", "/rests/data/coe-agent:interfaces", ""},
		{"GET", "/rests/data", ""}, {"GET", "/rests", ""}, {"GET", "/restconf/operational/coe-status:leases", ""},
		{"OPTIONS", pods, ""}, {"GET", "/", ""},
	} {
		status, answer := bearer(t, b, token, c.method, c.path, c.body)
		require.Equal(t, http.StatusForbidden, status, "%s %s: %s", c.method, c.path, answer)
		require.NotContains(t, answer, "kubernetes-one")
	}
	status, answer := b.Bridge().Do(http.MethodGet, pods, "")
	require.Equal(t, http.StatusOK, status)
	for _, n := range []string{"3", "4", "5", "6"} {
		require.NotContains(t, answer, posted+n)
	}
	require.Contains(t, answer, theirs)
}

// refusesOtherTokens sends tokens that must be refused: tokens for the API server, tokens of other
// accounts, and invalid tokens.
func (w *watched) refusesOtherTokens(t *testing.T, b *watcher) {
	pod := "agent-" + nodes[0].name
	good := w.token(t, agentAccount, agentAudience, pod)
	for _, c := range []struct{ name, token, says string }{
		{"for the API server", w.token(t, agentAccount, "https://kubernetes.default.svc", pod), "does not accept it for the audience coe-bridge"},
		{"of another account", w.token(t, "coe-bridge", agentAudience, ""), "not that of a service account of agents"},
		{"of no pod", w.token(t, agentAccount, agentAudience, ""), "bound to no node"},
		{"with another signature", good[:strings.LastIndexByte(good, '.')+1] + "AAAA", "does not accept it"},
		{"of a person", "nonsense", "does not accept it"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for range 2 {
				status, answer := bearer(t, b, c.token, http.MethodGet, streamOf(0), "")
				require.Equal(t, http.StatusUnauthorized, status)
				require.Contains(t, answer, c.says)
			}
		})
	}
	require.Eventually(t, func() bool { return b.Log().Says(0, "login failed", "bound to no node") }, patience, poll)
}

// unjudged removes the bridge's right to review tokens. Then the bridge answers agents that it cannot
// ask the API server, and the log names the missing right, until it is given again.
func (w *watched) unjudged(t *testing.T, all []right) {
	w.allow(t, "without-reviews", without(all, reviewTokens))
	_, err := w.Client().CoreV1().Nodes().Create(t.Context(), newNode(nodes[2].name, nodes[2].address), metav1.CreateOptions{})
	require.NoError(t, err)
	w.agentPod(t, nodes[2].name)
	b := w.serveAgents(t, "without-reviews")
	token := w.token(t, agentAccount, agentAudience, "agent-"+nodes[2].name)
	const complaint = "allow create on tokenreviews.authentication.k8s.io"
	status, answer := bearer(t, b, token, http.MethodGet, streamOf(2), "")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Contains(t, answer, complaint)
	require.Eventually(t, func() bool { return b.Log().Says(0, `"level":"ERROR"`, complaint) }, patience, poll)
	w.allow(t, "without-reviews", all)
	require.Eventually(t, func() bool {
		status, _ := bearer(t, b, token, http.MethodGet, streamOf(2), "")
		return status == http.StatusOK
	}, patience, poll)
}

// post posts a pod on a node, as a client with the role writer.
func (b *watcher) post(t *testing.T, n, node string) (uid string) {
	t.Helper()
	status, answer := b.Bridge().Do(http.MethodPost, "/rests/data/pod:coe", entityOn(posted+n, node))
	require.Equal(t, http.StatusCreated, status, answer)
	return posted + n
}

func (w *watched) uid(t *testing.T, namespace, name string) string {
	t.Helper()
	pod, err := w.Client().CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	return string(pod.UID)
}

func entityOn(uid, node string) string {
	return fmt.Sprintf(`{"pod:pods":[%s]}`, entity(uid, node))
}

func entitiesOn(uid1, node1, uid2, node2 string) string {
	return fmt.Sprintf(`{"pod:pods":[%s,%s]}`, entity(uid1, node1), entity(uid2, node2))
}

func entity(uid, node string) string {
	return fmt.Sprintf(`{"uid":%q,"name":"p-%s","network-NS":"served","host-ip-address":%q,"interface":[{"uid":%q}]}`, uid, uid[35:], node, uid)
}
