package policies

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
)

// TestLogAnnotation: the rows of OVN follow the annotation of a namespace.
func TestLogAnnotation(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	c.makeNamespace("shop", nil)
	c.create(&pod{namespace: "shop", name: "db", host: hosts[0]})
	web := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
	web.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{}}
	_, err := c.Client().NetworkingV1().NetworkPolicies("shop").Create(t.Context(), web, metav1.CreateOptions{})
	require.NoError(t, err)
	drops, allows := []string{"shop:isolated:ingress"}, []string{"shop:ingress:web:0:ipv4", "shop:ingress:web:0:ipv6"}

	c.awaitLogged(nil)
	for _, step := range []struct {
		argument string
		want     []string
	}{
		{"=drop", drops}, {"=all", append(allows, drops...)}, {"=drop", drops}, {"=some", nil}, {"=all", append(allows, drops...)}, {"-", nil},
	} {
		_, err := c.Kubectl(t.Context(), "annotate", "namespace", "shop", "--overwrite", coe.PolicyLogAnnotation+step.argument)
		require.NoError(t, err)
		c.awaitLogged(step.want)
	}
}

// awaitLogged waits until OVN has the ACL that isolates, and logs the ACLs with these names and no
// others.
func (c *cluster) awaitLogged(want []string) {
	c.t.Helper()
	bridgetest.Await(c.t, 20*time.Millisecond, converge, fmt.Sprintf("OVN logs %q", want), func() error {
		names, err := c.lab.NBCtl(c.t.Context(), "--bare", "--columns=name", "find", "ACL", "log=true")
		if err != nil {
			return err
		}
		isolates, err := c.lab.NBCtl(c.t.Context(), "--bare", "--columns=log,name,severity,meter", "find", "ACL", "priority=998")
		if err != nil {
			return err
		}
		meters, err := c.lab.NBCtl(c.t.Context(), "--bare", "--columns=unit", "list", "Meter")
		if err != nil {
			return err
		}
		have := strings.Fields(names)
		slices.Sort(have)
		plain := strings.TrimSpace(isolates) == "false" // and the other columns are empty
		wanted := 0                                     // of meters: for packets that the ACL drops, and for those that rules allow
		if len(want) > 0 {
			wanted = 2
		}
		if !slices.Equal(have, want) || len(strings.Fields(meters)) != wanted || plain != (len(want) == 0) {
			return fmt.Errorf("it logs %q with %d meters, and isolates with %q", have, len(strings.Fields(meters)), isolates)
		}
		return nil
	})
}
