package kubelet

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coe-bridge/coe-bridge/coe/kube/connectivity"
	"github.com/coe-bridge/coe-bridge/test/lab/kubelab"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// connectivityTest returns the command connectivity test for the cluster.
func (c *cluster) connectivityTest(ctx context.Context, args ...string) *exec.Cmd {
	argv := []string{c.Program(), "connectivity", "test", "--kubeconfig", c.Kubeconfig(), "--image", kubelab.TestImage, "-o", "json"}
	return c.Outside().Command(ctx, append(argv, args...)...)
}

// report runs a connectivity test, and requires its exit status.
func (c *cluster) report(t *testing.T, status int, args ...string) *connectivity.Report {
	t.Helper()
	cmd := c.connectivityTest(t.Context(), args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	_ = cmd.Run() // its status is compared
	require.Equal(t, status, cmd.ProcessState.ExitCode(), "%s%s", stderr.String(), stdout.String())
	require.Empty(t, stderr.String(), "a program that reads the output gets no progress")
	var report connectivity.Report
	require.NoError(t, json.Unmarshal(stdout.Bytes(), &report))
	return &report
}

// connectivityNamespaces returns the namespaces of all connectivity tests.
func (c *cluster) connectivityNamespaces(ctx context.Context) (names []string, err error) {
	list, err := c.Client().CoreV1().Namespaces().List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/managed-by=coe-bridge-connectivity-test"})
	if err != nil {
		return nil, err
	}
	for _, n := range list.Items {
		names = append(names, n.Name)
	}
	return names, nil
}

// requireCleaned requires that no connectivity test has left its namespace.
func (c *cluster) requireCleaned(t *testing.T) {
	t.Helper()
	left, err := c.connectivityNamespaces(t.Context())
	require.NoError(t, err)
	require.Empty(t, left)
}

// testConnectivity runs three connectivity tests at the same time. None leaves anything.
func (c *cluster) testConnectivity(t *testing.T) {
	_, err := c.Run(t.Context(), "", "--namespace=kube-system", "rollout", "status", "deployment/coredns", "--timeout=90s")
	require.NoError(t, err)
	t.Run("at the same time", func(t *testing.T) {
		for name, test := range map[string]func(*testing.T){
			"every check passes": c.testConnectivityPasses, "no image": c.testConnectivityWithoutImage, "interrupted": c.testConnectivityInterrupted,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t)
			})
		}
	})
	c.requireCleaned(t)
}

func (c *cluster) testConnectivityPasses(t *testing.T) {
	report := c.report(t, 0, "--outside", fmt.Sprintf("%s:6443", ovnhost.Central))
	require.Equal(t, []string{"n1", "n2"}, report.Nodes)
	passed := map[connectivity.Kind]int{}
	for _, r := range report.Results {
		require.Equal(t, connectivity.Passed, r.Status, "%s: %s", r.Way(), r.Reason)
		passed[r.Kind]++
	}
	require.Equal(t, map[connectivity.Kind]int{ // with IPv4
		connectivity.PodStart: 6, connectivity.SameNode: 4, connectivity.OtherNode: 4, connectivity.FullPackets: 4, connectivity.PodToService: 8,
		connectivity.DNS: 4, connectivity.Hairpin: 2, connectivity.PodToNode: 4, connectivity.NodeToPod: 4, connectivity.NodeToService: 4,
		connectivity.NodePort: 8, connectivity.FromOutside: 4, connectivity.Outside: 2, connectivity.PolicyDeny: 4, connectivity.PolicyAllow: 4,
	}, passed)
}

// testConnectivityWithoutImage uses an image that does not exist, so that no pod starts. The namespace is
// kept.
func (c *cluster) testConnectivityWithoutImage(t *testing.T) {
	report := c.report(t, 1, "--image", "localhost/missing:1", "--start-timeout", "30s", "--keep")
	require.Equal(t, 6, report.Failed)
	require.Zero(t, report.Passed)
	for _, r := range report.ByKind(connectivity.PodStart) {
		require.Regexp(t, `^(ErrImagePull|ImagePullBackOff): .*localhost/missing:1`, r.Reason)
	}
	names, err := c.connectivityNamespaces(t.Context())
	require.NoError(t, err)
	require.Contains(t, names, report.Namespace)
	require.NoError(t, c.Client().CoreV1().Namespaces().Delete(t.Context(), report.Namespace, metav1.DeleteOptions{}))
	eventually(t, func(ctx context.Context) error {
		names, err := c.connectivityNamespaces(ctx)
		if err == nil && slices.Contains(names, report.Namespace) {
			err = fmt.Errorf("namespace %s is there", report.Namespace)
		}
		return err
	})
}

// testConnectivityInterrupted interrupts a connectivity test that waits for its pods. It removes them.
func (c *cluster) testConnectivityInterrupted(t *testing.T) {
	const image = "localhost/missing:2"
	cmd := c.connectivityTest(t.Context(), "--image", image)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	require.NoError(t, cmd.Start())
	pods := func(ctx context.Context) (number int) {
		list, err := c.Client().CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
		require.NoError(t, err)
		for _, p := range list.Items {
			if p.Spec.Containers[0].Image == image {
				number++
			}
		}
		return number
	}
	eventually(t, func(ctx context.Context) error {
		if number := pods(ctx); number != 6 {
			return fmt.Errorf("the test has created %d pods: expected 6", number)
		}
		return nil
	})
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	_ = cmd.Wait() // its status is compared
	require.Equal(t, 2, cmd.ProcessState.ExitCode())
	require.Regexp(t, `^removing namespace connectivity-test-\w+\ncoe-bridge: connectivity test: interrupt signal received\n$`, stderr.String())
	require.Zero(t, pods(t.Context()))
}

// testConnectivityFails lets the network between the nodes drop large packets of tunnels. Exactly the
// checks with full packets between nodes fail.
func (c *cluster) testConnectivityFails(t *testing.T) {
	firewall := func(ctx context.Context, commands string) {
		_, err := c.Outside().Exec(ctx, "nft", commands)
		require.NoError(t, err)
	}
	firewall(t.Context(), "add table bridge small")
	t.Cleanup(func() { firewall(context.WithoutCancel(t.Context()), "delete table bridge small") })
	firewall(t.Context(), "add chain bridge small forward { type filter hook forward priority 0; }; "+
		"add rule bridge small forward udp dport 6081 udp length > 1400 drop")
	report := c.report(t, 1, "--skip", "service,dns,hairpin,pod-to-node,node-to-pod,node-to-service,node-port,from-outside,outside,policy-deny,policy-allow")
	for _, r := range report.Results {
		want := connectivity.Passed
		if r.Kind == connectivity.FullPackets && r.FromNode != r.ToNode {
			want = connectivity.Failed
			require.Equal(t, "no answer to packets of 1442 bytes", r.Reason)
			require.Contains(t, r.Next, "give pods a smaller MTU")
		}
		require.Equal(t, want, r.Status, "%s: %s", r.Way(), r.Reason)
	}
	require.Equal(t, 2, report.Failed)
	require.Equal(t, 16, report.Passed)
	c.requireCleaned(t)
}
