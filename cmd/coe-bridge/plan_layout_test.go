package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// layoutCluster has pods of three namespaces on each of two nodes. The pods have addresses if some are given.
func layoutCluster(addresses bool) string {
	var text strings.Builder
	for n := range 2 {
		fmt.Fprintf(&text, "---\n{apiVersion: v1, kind: Node, metadata: {name: n%d}, status: {addresses: [{type: InternalIP, address: 192.168.0.%d}]}}\n", n, n+1)
	}
	for i := range 12 {
		status := ""
		if addresses {
			status = fmt.Sprintf(", status: {podIP: 10.11.0.%d}", 2+i/6+i%6*8)
		}
		fmt.Fprintf(&text, "---\n{apiVersion: v1, kind: Pod, metadata: {name: p%d, namespace: ns%d, labels: {app: web}}, spec: {nodeName: n%d}%s}\n", i, i/2%3, i%2, status)
	}
	return text.String() + "---\n{apiVersion: v1, kind: Service, metadata: {name: web, namespace: ns0}, spec: {clusterIP: 10.96.0.1, selector: {app: web}, ports: [{port: 80}]}}\n"
}

// TestPlanOfLayout: a change of the layout costs rows, logical flows and blocks, which depend on whether pods keep the addresses
// of their former blocks.
func TestPlanOfLayout(t *testing.T) {
	for _, to := range []string{"node", "elan"} {
		t.Run(to, func(t *testing.T) {
			out, err := run(t, layoutCluster(false), "plan", "-f", "-", "--pool", "10.11.0.0/24", "--ovn-layout", to, "--only", "layout")
			require.NoError(t, err)
			requireGolden(t, "testdata/plan/layout-"+to+".txt", out)
		})
	}
	out, err := run(t, layoutCluster(true), "plan", "--cluster", "-", "--pool", "10.11.0.0/24", "--ovn-layout", "node", "--only", "layout", "-o", "json")
	require.NoError(t, err)
	requireGolden(t, "testdata/plan/layout.json", out)

	_, err = run(t, "", "plan", "-f", "-", "--only", "layout")
	require.EqualError(t, err, "--only layout: name the layout to change to with --ovn-layout")
	out, err = run(t, layoutCluster(false), "plan", "-f", "-", "--pool", "10.11.0.0/24", "--ovn-layout", "node")
	require.NoError(t, err)
	require.NotContains(t, out, "what a change", "the bridge can have the layout already")
	_, err = run(t, "", "plan", "--ovn-layout", "node")
	require.EqualError(t, err, "nothing to plan: name a file with -f, or - for standard input")
}

// TestPlanOfLayoutWithProblems: two pods of a node that have the same MAC address cannot both stay when the layout changes.
func TestPlanOfLayoutWithProblems(t *testing.T) {
	const pods = `{"pod:coe": {"pods": [
		{"uid": "8f2a6d5e-0000-4000-8000-000000000001", "name": "web", "network-NS": "shop", "host-ip-address": "192.168.33.12", "port-mac-address": "02:00:00:00:00:01"},
		{"uid": "8f2a6d5e-0000-4000-8000-000000000002", "name": "db", "network-NS": "ops", "host-ip-address": "192.168.33.12", "port-mac-address": "02:00:00:00:00:01"}]}}`
	args := []string{"plan", "-f", "-", "--pool", "10.11.0.0/24", "--only", "layout", "--ovn-layout"}
	out, err := run(t, pods, append(args, "elan")...)
	require.NoError(t, err)
	require.NotContains(t, out, ": AddressTaken: ")
	out, err = run(t, pods, append(args, "node")...)
	require.EqualError(t, err, "plan: not everything can be mapped; problems: 2")
	require.Contains(t, out, "problem: pod web of namespace shop: AddressTaken: ")
}

// TestPlanOfLayoutWithEqualAddresses: isolated namespaces can have equal addresses with a switch for each of them, and not with
// one for each node.
func TestPlanOfLayoutWithEqualAddresses(t *testing.T) {
	const pods = `{"pod:coe": {"pods": [
		{"uid": "8f2a6d5e-0000-4000-8000-000000000001", "name": "web", "network-NS": "shop", "host-ip-address": "192.168.33.12",
		 "interface": [{"uid": "8f2a6d5e-0000-4000-8000-000000000011", "ip-address": "7.7.7.7"}]},
		{"uid": "8f2a6d5e-0000-4000-8000-000000000002", "name": "db", "network-NS": "ops", "host-ip-address": "192.168.33.13",
		 "interface": [{"uid": "8f2a6d5e-0000-4000-8000-000000000012", "ip-address": "7.7.7.7"}]}]}}`
	args := []string{"plan", "-f", "-", "--isolation", "namespace", "--only"}
	_, err := run(t, pods, append(args, "netvirt")...)
	require.NoError(t, err)
	out, err := run(t, pods, append(args, "layout", "--ovn-layout", "node")...)
	require.ErrorContains(t, err, "plan: not everything can be mapped")
	require.Regexp(t, `problem: pod (web|db) of namespace (shop|ops): AddressTaken: `, out)
}
