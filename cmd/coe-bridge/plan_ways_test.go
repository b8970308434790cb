package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const planServices = `---
{apiVersion: v1, kind: Service, metadata: {name: sql, namespace: shop}, spec: {clusterIP: 10.96.0.10, selector: {app: db}, externalIPs: [203.0.113.1], ports: [{port: 80, targetPort: sql, nodePort: 30080}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {clusterIP: 10.96.0.11, externalTrafficPolicy: Local, selector: {app: web}, ports: [{port: 80, targetPort: 8080, nodePort: 30081}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: none, namespace: ops}, spec: {clusterIP: 10.96.0.12, ports: [{port: 80, nodePort: 30082}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: limited, namespace: ops}, spec: {type: LoadBalancer, clusterIP: 10.96.0.13, selector: {run: api}, loadBalancerSourceRanges: [198.51.100.0/28], ports: [{port: 53, protocol: UDP}]},
  status: {loadBalancer: {ingress: [{ip: 203.0.113.2}]}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: api, namespace: ops, labels: {run: api}}, spec: {nodeName: n1}, status: {podIP: 10.1.1.2}}
`

const planEdgePolicies = `---
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: edge, namespace: shop}, spec: {podSelector: {matchLabels: {app: db}}, ingress: [{from: [{ipBlock: {cidr: 100.96.0.0/16}}]}]}}
---
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: client, namespace: shop}, spec: {podSelector: {matchLabels: {app: web}}, ingress: [{from: [{ipBlock: {cidr: 198.51.100.0/24}}]}]}}
`

// TestPlanOfWays: plan follows clients outside to the endpoints of services, and says which of them the network policies admit.
func TestPlanOfWays(t *testing.T) {
	ways := func(text string, args ...string) string {
		t.Helper()
		out, err := run(t, text, append([]string{"plan", "-f", "-", "--only", "ways", "--pod-network", "10.1.0.0/16,fd00::/64", "--external-addresses", "203.0.113.0/24"}, args...)...)
		require.NoError(t, err)
		return words(out)
	}
	const opened = `
open all every node:30082/tcp ops/none Cluster no endpoint - -
open 198.51.100.0/28 203.0.113.2:53/udp ops/limited Cluster ops/api 10.1.1.2:53 the asked node all
open all every node:30080/tcp shop/sql Cluster shop/db 10.1.0.1:5432 the asked node none
open all 203.0.113.1:80/tcp shop/sql Cluster shop/db 10.1.0.1:5432 the asked node none
open all 192.168.0.2:30081/tcp shop/web Local shop/web 10.1.0.2:8080 the client none
`
	got := ways(planServices, "--cluster", policyCluster)
	for line := range strings.SplitSeq(strings.TrimSpace(opened), "\n") {
		require.Contains(t, got, line+"\n")
	}
	require.Equal(t, strings.Count(opened, "open"), strings.Count(got, "open"), got)

	cluster, err := os.ReadFile(policyCluster)
	require.NoError(t, err)
	base := file(t, "cluster.yaml", string(cluster)+planServices)
	got = ways(planEdgePolicies, "--cluster", base)
	for _, line := range []string{
		"close all every node:30080/tcp shop/sql Cluster shop/db 10.1.0.1:5432 the asked node none\n",
		"open all every node:30080/tcp shop/sql Cluster shop/db 10.1.0.1:5432 the asked node all\n",
		"open all 192.168.0.2:30081/tcp shop/web Local shop/web 10.1.0.2:8080 the client 198.51.100.0/24\n",
	} {
		require.Contains(t, got, line)
	}
	require.NotContains(t, got, "ops/")
	got = ways(strings.Replace(planEdgePolicies, "100.96.0.0/16", "100.96.255.254/32", 1), "--cluster", base)
	require.Contains(t, got, "open all every node:30080/tcp shop/sql Cluster shop/db 10.1.0.1:5432 the asked node by some nodes\n")
	require.Contains(t, ways(planPolicy, "--cluster", policyCluster), "no changes")
}

// TestPlanWarnsOfPodsWithoutAddress: without the pools of the bridge, the pods of a running cluster have no addresses, so services
// do not lead to them. plan says so, unless only connections are asked for.
func TestPlanWarnsOfPodsWithoutAddress(t *testing.T) {
	const warns = "warning: pods of the running cluster that have no address in this plan: 3; services do not lead to them. Give the pools"
	for args, want := range map[string]bool{"--only ways": true, "--only ovn": true, "--only paths": false, "--only ways --pod-network 10.1.0.0/16,fd00::/64": false} {
		out, err := run(t, planServices, append([]string{"plan", "-f", "-", "--cluster", policyCluster, "--external-addresses", "203.0.113.0/24"}, strings.Fields(args)...)...)
		if err != nil {
			require.ErrorContains(t, err, "not everything can be mapped")
		}
		require.Equal(t, want, strings.Contains(out, warns), "%s: %s", args, out)
	}
}

const planWaysOfBothFamilies = `---
{apiVersion: v1, kind: Service, metadata: {name: none, namespace: ops}, spec: {clusterIP: 10.96.0.12, clusterIPs: [10.96.0.12, "fd00:96::12"], ipFamilies: [IPv4, IPv6], ports: [{port: 80, nodePort: 30082}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: six, namespace: ops}, spec: {externalTrafficPolicy: Local, selector: {run: six}, clusterIP: "fd00:96::13", clusterIPs: ["fd00:96::13"], ipFamilies: [IPv6], ports: [{port: 80, nodePort: 30084}]}}
---
{apiVersion: v1, kind: Node, metadata: {name: n4}, status: {addresses: [{type: InternalIP, address: 192.168.0.4}, {type: InternalIP, address: "2001:db8::4"}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: six, namespace: ops, labels: {run: six}}, spec: {nodeName: n4}, status: {podIP: 10.1.4.2, podIPs: [{ip: 10.1.4.2}, {ip: "fd00::4:2"}]}}
`

// TestPlanOfWaysOfBothFamilies: a port of both families without endpoints is one way, and clients ask a node by its address of the
// family of the endpoint.
func TestPlanOfWaysOfBothFamilies(t *testing.T) {
	plan := func(text string) string {
		t.Helper()
		out, err := run(t, text, "plan", "-f", "-", "--only", "ways", "--pod-network", "10.1.0.0/16,fd00::/64", "--node-network", "100.96.0.0/16,fd00:100::/64",
			"--cluster", policyCluster)
		require.NoError(t, err)
		return words(out)
	}
	got := plan(planWaysOfBothFamilies)
	require.Equal(t, 1, strings.Count(got, "open all every node:30082/tcp ops/none Cluster no endpoint - -\n"), got)
	require.Contains(t, got, "open all [2001:db8::4]:30084/tcp ops/six Local ops/six [fd00::4:2]:80 the client all\n")

	got = plan(strings.Replace(planWaysOfBothFamilies, `, {type: InternalIP, address: "2001:db8::4"}`, "", 1))
	require.Contains(t, got, "open all node 192.168.0.4:30084/tcp ops/six Local ops/six [fd00::4:2]:80 the client all\n")
}

// TestPlanOfGateways: plan reads gateways of OVN from files for apply, as get prints them, and follows clients through those that
// have services.
func TestPlanOfGateways(t *testing.T) {
	const gateways = `
coe-gateways:gateways:
  gateway:
  - {node: 192.168.0.1, chassis: c1, address: 192.0.2.138, prefix-length: 24, next-hop: 192.0.2.254, services: true}
  - {node: 192.168.0.2, chassis: c2, address: 192.0.2.139, prefix-length: 24, next-hop: 192.0.2.254, services: true}
  - {node: 192.168.0.3, chassis: c3, address: 192.0.2.140, prefix-length: 24, next-hop: 192.0.2.254}
`
	const policies = `---
{apiVersion: v1, kind: Node, metadata: {name: n3}, status: {addresses: [{type: InternalIP, address: 192.168.0.3}]}}
---
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: edge, namespace: shop}, spec: {podSelector: {matchLabels: {app: db}}, ingress: [{from: [{ipBlock: {cidr: 169.254.192.0/18}}]}]}}
---
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: client, namespace: shop}, spec: {podSelector: {matchLabels: {app: web}}, ingress: [{from: [{ipBlock: {cidr: 198.51.100.0/24}}]}]}}
`
	plan := func(gateways, text string, args ...string) (string, error) {
		t.Helper()
		return run(t, text, append([]string{"plan", "-f", "-", "-f", file(t, "gateways.yaml", gateways), "--cluster", policyCluster, "--pod-network", "10.1.0.0/16,fd00::/64",
			"--external-addresses", "203.0.113.0/24"}, args...)...)
	}
	out, err := plan(gateways, planServices+policies, "--only", "ways")
	require.NoError(t, err)
	got := words(out)
	for _, line := range []string{
		"open all every node:30080/tcp shop/sql Cluster shop/db 10.1.0.1:5432 the asked node none\n",
		"open all 192.0.2.138:30080/tcp by gateway 192.168.0.1 shop/sql Cluster shop/db 10.1.0.1:5432 the gateway all\n",
		"open all 192.0.2.139:30080/tcp by gateway 192.168.0.2 shop/sql Cluster shop/db 10.1.0.1:5432 the gateway all\n",
		"open all 203.0.113.1:80/tcp shop/sql Cluster shop/db 10.1.0.1:5432 the asked node none\n" +
			"open all 203.0.113.1:80/tcp by gateway 192.168.0.1 shop/sql Cluster shop/db 10.1.0.1:5432 the gateway all\n" +
			"open all 203.0.113.1:80/tcp by gateway 192.168.0.2 shop/sql Cluster shop/db 10.1.0.1:5432 the gateway all\n",
		"open all 192.0.2.138:30081/tcp by gateway 192.168.0.1 shop/web Local no endpoint - -\n",
		"open all 192.0.2.139:30081/tcp by gateway 192.168.0.2 shop/web Local shop/web 10.1.0.2:8080 the client 198.51.100.0/24\n",
		"open 198.51.100.0/28 203.0.113.2:53/udp by gateway 192.168.0.2 ops/limited Cluster ops/api 10.1.1.2:53 the gateway all\n",
	} {
		require.Contains(t, got, line)
	}
	require.NotContains(t, got, "192.0.2.140")

	out, err = plan(gateways, planServices+policies, "--only", "ovn")
	require.NoError(t, err)
	require.Contains(t, words(out), "insert Logical_Router gateway:192.168.0.1")

	_, err = plan(strings.ReplaceAll(gateways, "192.0.2.139", "192.0.2.138"), planServices)
	require.ErrorContains(t, err, "the gateways of nodes 192.168.0.1 and 192.168.0.2 have the same address 192.0.2.138")
	const again = `{"coe-gateways:gateway":[{"node":"192.168.0.1","chassis":"c1","address":"192.0.2.138","prefix-length":24,"next-hop":"192.0.2.254"}]}`
	_, err = run(t, again, "plan", "-f", "-", "-f", file(t, "again.json", again))
	require.ErrorContains(t, err, "again.json: gateway of node 192.168.0.1 is given twice")
	_, err = plan(strings.Replace(gateways, "next-hop: 192.0.2.254", "next-hop: 192.0.3.254", 1), planServices)
	require.ErrorContains(t, err, "gateway of node 192.168.0.1: next-hop 192.0.3.254 is not the address of another machine in 192.0.2.0/24")
}

// TestPlanOfRestrictedWays: plan says which of the clients that may ask are admitted, not who else would be.
func TestPlanOfRestrictedWays(t *testing.T) {
	for _, c := range []struct{ ranges, policy, clients, admits string }{
		{"192.0.2.0/28", "cidr: 198.51.100.0/24", "192.0.2.0/28", "none"},
		{"192.0.2.0/28", "cidr: 192.0.2.0/24", "192.0.2.0/28", "all"},
		{"192.0.2.0/28", "cidr: 192.0.2.0/24, except: [192.0.2.8/30]", "192.0.2.0/28", "192.0.2.0/28 except 192.0.2.8/30"},
		{"192.0.2.0/28", "cidr: 192.0.2.0/29", "192.0.2.0/28", "192.0.2.0/29"},
		{`192.0.2.0/28, "2001:db8::/64"`, "cidr: 192.0.2.0/24", "192.0.2.0/28", "all"},
		{`"2001:db8::/64"`, "cidr: 192.0.2.0/24", "none", "none"},
	} {
		out, err := run(t, `---
{apiVersion: v1, kind: Service, metadata: {name: limited, namespace: shop}, spec: {type: LoadBalancer, externalTrafficPolicy: Local, clusterIP: 10.96.0.13, selector: {app: web},
  loadBalancerSourceRanges: [`+c.ranges+`], ports: [{port: 80, targetPort: 8080}]}, status: {loadBalancer: {ingress: [{ip: 203.0.113.2}]}}}
---
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: client, namespace: shop}, spec: {podSelector: {matchLabels: {app: web}}, ingress: [{from: [{ipBlock: {`+c.policy+`}}]}]}}
`, "plan", "-f", "-", "--only", "ways", "--pod-network", "10.1.0.0/16,fd00::/64", "--external-addresses", "203.0.113.0/24", "--cluster", policyCluster)
		require.NoError(t, err)
		require.Contains(t, words(out), "open "+c.clients+" 203.0.113.2:80/tcp shop/limited Local shop/web 10.1.0.2:8080 the client "+c.admits+"\n")
	}
}

// words returns a text with one space between words.
func words(text string) string {
	var all strings.Builder
	for line := range strings.SplitSeq(text, "\n") {
		all.WriteString(strings.Join(strings.Fields(line), " ") + "\n")
	}
	return all.String()
}
