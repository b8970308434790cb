package cluster

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/coe-bridge/coe-bridge/coe/kube/connectivity"
)

// agnhost is the program of the image.
const agnhost = "/agnhost"

// Times of a probe.
const (
	// connectTimeout is longer than the second after which TCP repeats a lost packet.
	connectTimeout = 2 * time.Second
	// probeTimeout also bounds the resolution of a name, and what the API server, kubelet and the
	// container runtime need to start the probe.
	probeTimeout = 20 * time.Second
)

// probe runs the probe of a check in its pod, or on this machine. In a pod it starts through kubelet, so that it needs nothing
// of the network that it tests.
func (t *test) probe(ctx context.Context, c connectivity.Check) connectivity.Outcome {
	if c.From == connectivity.ThisMachine {
		return outcomeOf(t.dial(ctx, c.Protocol, c.Target))
	}
	argv := []string{agnhost, "connect", "--timeout=" + connectTimeout.String(), "--protocol=" + strings.ToLower(string(c.Protocol))}
	if n := c.UDPData(); n > 0 {
		argv = append(argv, "--udp-data="+strings.Repeat("x", n-1)) // connect adds a line feed
	}
	_, text, err := t.exec(ctx, c.From, append(argv, c.Target)...)
	if err == nil {
		return connectivity.Outcome{}
	}
	if _, ended := errors.AsType[exec.CodeExitError](err); ended {
		return connectivity.Read(text)
	}
	return connectivity.Outcome{Cause: connectivity.NotRun, Detail: err.Error()}
}

// readMTUs adds the MTUs of clients to the facts. Container runtimes call the interface eth0.
func (t *test) readMTUs(ctx context.Context) {
	for i := range t.facts.Pods {
		p := &t.facts.Pods[i]
		if p.Role != connectivity.Client || p.Problem != "" {
			continue
		}
		text, _, err := t.exec(ctx, p.Name, agnhost, "mounttest", "--file_content=/sys/class/net/eth0/mtu")
		if err != nil {
			continue // the MTU is unknown
		}
		_, number, _ := strings.Cut(text, `": `)
		p.MTU, _ = strconv.Atoi(strings.TrimSpace(number))
	}
}

// mayExec fails if the API server says that the user must not run programs in the pods. Otherwise each
// probe would fail. If it does not answer the question, the probes show it.
func (t *test) mayExec(ctx context.Context) error {
	review, err := t.client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: t.namespace, Verb: "create", Resource: "pods", Subresource: "exec",
		}},
	}, metav1.CreateOptions{})
	if err == nil && !review.Status.Allowed {
		return errors.New("run programs in pods: the user has no right to create pods/exec in new namespaces: ask for it")
	}
	return nil
}

// run runs a program in a pod, and returns its output and its error output.
func (t *test) run(ctx context.Context, pod string, argv ...string) (stdout, stderr string, err error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	executor, err := t.executor(t.client.CoreV1().RESTClient().Post().Resource("pods").Namespace(t.namespace).Name(pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Command: argv, Stdout: true, Stderr: true}, scheme.ParameterCodec).URL())
	if err != nil {
		return "", "", err
	}
	var out, said head
	if err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &out, Stderr: &said}); ctx.Err() != nil {
		return "", "", ctx.Err() // they can still be written to
	} else if err != nil {
		return string(out.text), string(said.text), err
	}
	return string(out.text), string(said.text), nil
}

// maxOutput is how many bytes of the output of a program are kept: a probe says in a few lines why it has failed.
const maxOutput = 4 << 10

// head keeps the first bytes that are written to it.
type head struct{ text []byte }

func (h *head) Write(p []byte) (int, error) {
	h.text = append(h.text, p[:min(len(p), maxOutput-len(h.text))]...)
	return len(p), nil
}

// executor uses websockets and, like kubectl, SPDY if the API server or a proxy does not take them.
func (t *test) executor(url *url.URL) (remotecommand.Executor, error) {
	websockets, err := remotecommand.NewWebSocketExecutor(t.API, http.MethodGet, url.String())
	if err != nil {
		return nil, err
	}
	spdy, err := remotecommand.NewSPDYExecutor(t.API, http.MethodPost, url)
	if err != nil {
		return nil, err
	}
	return remotecommand.NewFallbackExecutor(websockets, spdy, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
}
