package cluster

import (
	"context"
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/coe-bridge/coe-bridge/coe/kube/connectivity"
)

// A pod and a node of the cluster are not outside of it.
func TestThisMachine(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	other := node("n1")
	require.Empty(t, thisMachine([]corev1.Node{*other}).Inside)
	for _, a := range thisMachine(nil).Addresses {
		require.True(t, a.IsGlobalUnicast())
		here := node("here")
		here.Status.Addresses[0].Address = a.String()
		require.Contains(t, thisMachine([]corev1.Node{*other, *here}).Inside, "this machine is node here")
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
	require.Contains(t, thisMachine(nil).Inside, "in a pod")
}

// With UDP only an answer shows that the other end was reached.
func TestDial(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = udp.Close() }()
	probe := func(protocol connectivity.Protocol, to net.Addr) connectivity.Outcome {
		return outcomeOf(dial(t.Context(), protocol, to.String()))
	}
	require.Empty(t, probe(connectivity.TCP, tcp.Addr()))
	require.Equal(t, connectivity.NoAnswer, probe(connectivity.UDP, udp.LocalAddr()).Cause)
	go func() {
		for {
			_, from, err := udp.ReadFrom(make([]byte, 10))
			if err != nil {
				return
			}
			_, _ = udp.WriteTo([]byte("server-1"), from)
		}
	}()
	require.Empty(t, probe(connectivity.UDP, udp.LocalAddr()))
	require.NoError(t, tcp.Close())
	require.Equal(t, connectivity.Refused, probe(connectivity.TCP, tcp.Addr()).Cause)
	require.Equal(t, connectivity.Other, outcomeOf(errors.New("no route")).Cause)
}

// A failure from this machine counts only if the machine reaches the node otherwise.
func TestFromOutside(t *testing.T) {
	c := connectivity.Check{
		Kind: connectivity.FromOutside, From: connectivity.ThisMachine, To: "n1", ToNode: "n1", Protocol: connectivity.UDP, Target: "10.1.0.1:31001",
	}
	for name, one := range map[string]struct {
		dials  map[string]error
		status connectivity.Status
		reason string
	}{
		"reached":             {map[string]error{"TCP 10.1.0.1:10250": syscall.ECONNREFUSED}, connectivity.Passed, ""},
		"closed":              {map[string]error{"UDP 10.1.0.1:31001": syscall.ECONNREFUSED}, connectivity.Failed, "connection refused"},
		"the kubelet refuses": {map[string]error{"UDP 10.1.0.1:31001": context.DeadlineExceeded, "TCP 10.1.0.1:10250": syscall.ECONNREFUSED}, connectivity.Failed, "no answer"},
		"not even the kubelet": {
			map[string]error{"UDP 10.1.0.1:31001": context.DeadlineExceeded, "TCP 10.1.0.1:10250": context.DeadlineExceeded},
			connectivity.Skipped, "this machine reaches neither the NodePort nor the kubelet of node n1 (10.1.0.1:10250)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				test := fakeTest()
				test.facts.Nodes = []connectivity.Node{{Name: "n0", Port: 1}, {Name: "n1", Port: 10250}}
				test.dial = func(_ context.Context, protocol connectivity.Protocol, target string) error {
					return one.dials[string(protocol)+" "+target]
				}
				r := test.check(t.Context(), c)
				require.Equal(t, one.status, r.Status)
				require.Equal(t, one.reason, r.Reason)
			})
		})
	}
}

// One try that fails says nothing: the service has just been created.
func TestFromOutsideLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		test, tries := fakeTest(), 0
		test.facts.Nodes = []connectivity.Node{{Name: "n1", Port: 10250}}
		test.dial = func(_ context.Context, _ connectivity.Protocol, target string) error {
			if tries++; tries == 1 || target == "10.1.0.1:10250" {
				return context.DeadlineExceeded
			}
			return nil
		}
		r := test.check(t.Context(), connectivity.Check{
			Kind: connectivity.FromOutside, From: connectivity.ThisMachine, ToNode: "n1", Protocol: connectivity.TCP, Target: "10.1.0.1:30001",
		})
		require.Equal(t, connectivity.Passed, r.Status)
		require.Equal(t, 4, r.Tries)
	})
}

// An API server that does not answer is waited for a time that a person waits.
func TestNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines []string
		test := fakeTest()
		test.Progress = func(line string) { lines = append(lines, line) }
		test.client.(*fake.Clientset).PrependReactor("list", "nodes", func(k8stesting.Action) (bool, runtime.Object, error) {
			<-time.After(2 * listTimeout)
			return true, nil, context.DeadlineExceeded
		})
		report, err := test.test(t.Context())
		require.EqualError(t, err, "list nodes: the API server has not answered within 30s")
		require.Nil(t, report)
		require.Equal(t, []string{"asking the API server for the nodes"}, lines)
	})
}

// A pod that writes without end does not fill the memory of this machine.
func TestHead(t *testing.T) {
	var h head
	for range 1000 {
		n, err := h.Write([]byte(strings.Repeat("x", 100)))
		require.NoError(t, err)
		require.Equal(t, 100, n)
	}
	require.Len(t, h.text, maxOutput)
}
