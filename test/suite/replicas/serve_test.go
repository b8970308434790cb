package replicas

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/ovsdb"
)

// trees are the trees for which every replica gives the same answer.
var trees = []string{
	"config/pod:coe", "config/dhcp_allocation_pool:dhcp_allocation_pool", "operational/dhcp_allocation_pool:dhcp_allocation_pool",
	"operational/coe-status:leases", "operational/coe-agent:interfaces",
	"config/elan:elan-instances", "config/elan:elan-interfaces", "config/l3vpn:vpn-instances", "config/l3vpn:vpn-interfaces",
	"config/ietf-interfaces:interfaces", "config/coe-netvirt:subnets",
	"operational/elan:elan-instances", "operational/elan:elan-interfaces", "operational/l3vpn:vpn-instances",
	"operational/l3vpn:vpn-interfaces", "operational/ietf-interfaces:interfaces", "operational/coe-netvirt:subnets",
}

// TestEveryReplicaServes: one replica leads. Clients can write through any replica, and all replicas give
// the same answers.
func TestEveryReplicaServes(t *testing.T) {
	t.Parallel()
	nb, e := ovsdb.Start(t), startEtcd(t, 1)
	all := startReplicas(t, 3, e, nb)
	putPool(all[1], "10.42.0.0/16")
	for n := range 30 {
		all[n%3].change(http.MethodPut, podPath(n), podBody(n))
	}
	for n := range 10 {
		all[(n+1)%3].change(http.MethodDelete, podPath(n), nil)
	}
	pods := map[string]int{}
	for n := 10; n < 30; n++ {
		pods[podUID(n)] = n
	}
	await(t, patience, "one leads", func() error { return oneLeads(all) })
	for _, r := range all {
		await(t, patience, "status and metric agree", func() error {
			err := r.leads(true)
			if err != nil {
				err = r.leads(false)
			}
			return err
		})
		r.awaitSync()
		requireExact(t, r, nb, pods)
		for _, path := range []string{"/healthz", "/metrics"} {
			require.NoError(t, r.open(path))
		}
		await(t, patience, r.name+" is ready", func() error { return r.open("/readyz") })
	}
	for _, r := range all[1:] {
		for _, tree := range trees {
			await(t, patience, r.name+" answers as the leader", func() error { return sameTree(t, all[0], r, tree) })
		}
		for _, node := range nodes {
			want := snapshot(t, all[0], node)
			require.NotEmpty(t, want)
			require.Equal(t, want, snapshot(t, r, node))
		}
	}
}

func sameTree(t *testing.T, a, b *replica, tree string) error {
	first, want, err := a.do(t.Context(), http.MethodGet, "/restconf/"+tree, nil)
	if err != nil {
		return err
	}
	second, got, err := b.do(t.Context(), http.MethodGet, "/restconf/"+tree, nil)
	switch {
	case err != nil:
		return err
	case first != http.StatusOK:
		return fmt.Errorf("%s: %d %s", tree, first, want)
	case first != second || want != got:
		return fmt.Errorf("%s:\n%d %s\n%d %s", tree, first, want, second, got)
	}
	return nil
}

// snapshot returns the first events of a node's stream, without their IDs and times.
func snapshot(t *testing.T, r *replica, node string) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	res, err := r.Client().Open(ctx, http.MethodGet, "/rests/streams/node-interfaces="+node, "")
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	require.Equal(t, http.StatusOK, res.StatusCode)
	var events []string
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() {
		_, data, found := strings.Cut(lines.Text(), `"coe-agent:interface-changed":`)
		switch {
		case found:
			events = append(events, data)
		case strings.Contains(lines.Text(), "coe-agent:snapshot-complete"):
			slices.Sort(events)
			return events
		}
	}
	require.NoError(t, errors.Join(lines.Err(), errors.New("the stream ended before its snapshot")))
	return nil
}
