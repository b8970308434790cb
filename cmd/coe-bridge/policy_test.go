package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/output"
)

const policyCluster = "testdata/policy/cluster.yaml"

func runPolicy(t *testing.T, stdin string, args ...string) (string, error) {
	t.Helper()
	return run(t, stdin, append([]string{"policy"}, args...)...)
}

// TestPolicyOutput compares the output of the commands with golden files.
func TestPolicyOutput(t *testing.T) {
	for name, args := range map[string]string{
		"check-allowed.txt":  "check --from shop/web --to shop/db:5432",
		"check-allowed.json": "check --from shop/web --to shop/db:5432 -o json",
		"check-denied.txt":   "check --from shop/db --to shop/web:80/tcp",
		"check-denied.yaml":  "check --from shop/db --to 192.0.2.7:80 -o yaml",
		"explain.txt":        "explain shop/db",
		"explain.json":       "explain shop/db -o json",
		"explain-rows.txt":   "explain shop/db --rows",
		"reach-to.txt":       "reach --to shop/db",
		"reach-to.json":      "reach --to shop/db -o json",
		"reach-from.txt":     "reach --from ops/prometheus",
	} {
		t.Run(name, func(t *testing.T) {
			out, err := runPolicy(t, "", strings.Fields(args+" -f "+policyCluster)...)
			if strings.Contains(name, "denied") {
				require.Equal(t, output.Exit{Status: 3}, err)
			} else {
				require.NoError(t, err)
			}
			requireGolden(t, "testdata/policy/"+name, out)
		})
	}
}

// TestPolicyAboveALimit: a policy above a limit closes the pods that it selects, and the commands still answer.
func TestPolicyAboveALimit(t *testing.T) {
	ports := strings.Repeat("{port: 80}, ", 2500)
	large := filepath.Join(t.TempDir(), "large.yaml")
	require.NoError(t, os.WriteFile(large, []byte(`
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: large, namespace: ops}
spec: {podSelector: {}, ingress: [{ports: [`+ports+`]}]}
`), 0o600))
	out, err := runPolicy(t, "", strings.Fields("check --from shop/web --to shop/db:5432 -f "+policyCluster+" -f "+large)...)
	require.NoError(t, err)
	require.Contains(t, out, "note: ops/large allows nothing, because it is invalid: spec: its rules, peers and ports have more than 2500 entries")
	_, err = runPolicy(t, "", strings.Fields("check --from shop/web --to ops/prometheus:80 -f "+policyCluster+" -f "+large)...)
	require.Equal(t, output.Exit{Status: 3}, err)
}

func TestPolicyCheck(t *testing.T) {
	const service = `---
{apiVersion: v1, kind: Service, metadata: {name: sql, namespace: shop}, spec: {clusterIP: 10.96.0.10, externalIPs: [203.0.113.1, 192.168.0.2]}}
`
	for name, c := range map[string]struct{ args, want string }{
		"address of a pod":     {"--from 10.1.1.1 --to 10.1.0.1:9090", "allowed: 10.1.1.1 to 10.1.0.1:9090/tcp"},
		"second number":        {"--from ops/prometheus --to shop/db:9091", "allowed: ops/prometheus to shop/db:9091/tcp"},
		"protocol":             {"--from shop/web --to shop/db:53/UDP", "allowed: shop/web to shop/db:53/udp"},
		"other protocol":       {"--from shop/web --to shop/db:53/tcp", "denied: shop/web to shop/db:53/tcp"},
		"IPv6":                 {"--from fd00::2 --to [fd00::1]:5432", "allowed: fd00::2 to [fd00::1]:5432/tcp"},
		"own node":             {"--from 192.168.0.1 --to shop/db:8080", "allowed: 192.168.0.1 to shop/db:8080/tcp"},
		"other node":           {"--from ops/exporter --to shop/db:8080", "denied: ops/exporter to shop/db:8080/tcp"},
		"in the except":        {"--from 10.9.1.1 --to shop/db:9090", "denied: 10.9.1.1 to shop/db:9090/tcp"},
		"address of a job":     {"--from 10.1.0.3 --to shop/db:5432", "denied: 10.1.0.3 to shop/db:5432/tcp"},
		"finished":             {"--from shop/migrate --to shop/db:5432", "policy check: pod shop/migrate has finished"},
		"unknown":              {"--from shop/api --to shop/db:5432", "policy check: pod shop/api is not in the files"},
		"no namespace":         {"--from web --to shop/db:5432", `policy check: "web": want a pod as NAMESPACE/POD, or an address`},
		"no port":              {"--from shop/web --to shop/db", `policy check: --to "shop/db": want NAMESPACE/POD:PORT[/PROTOCOL] or ADDRESS:PORT[/PROTOCOL], with a number as PORT`},
		"service":              {"--from 192.0.2.7 --to 10.96.0.10:5432", "policy check: 10.96.0.10 is an address of service shop/sql: name one of its pods"},
		"external address":     {"--from 192.0.2.7 --to 203.0.113.1:5432", "policy check: 203.0.113.1 is an address of service shop/sql: name one of its pods"},
		"address of a node":    {"--from 192.0.2.7 --to 192.168.0.2:5432", "allowed: 192.0.2.7 to 192.168.0.2:5432/tcp"},
		"name of a service":    {"--from shop/web --to shop/sql:5432", "policy check: shop/sql is a service: name one of its pods"},
		"prefix":               {"--from 10.1.0.0/24 --to shop/db:80", "policy check: 10.1.0.0/24 is a prefix: give one address"},
		"unknown namespace":    {"--from shp/web --to shop/db:80", "policy check: pod shp/web is not in the files: namespace shp has no pods; these have: ops, shop"},
		"arguments":            {"shop/web shop/db:5432", `policy check: "shop/web": name a pod with --from or --to`},
		"port 0":               {"--from shop/web --to shop/db:0", `policy check: --to "shop/db:0": want`},
		"other protocol, icmp": {"--from shop/web --to shop/db:1/icmp", `policy check: --to "shop/db:1/icmp": want`},
		"IPv6 without bracket": {"--from shop/web --to fd00::1:80", `policy check: --to "fd00::1:80": want`},
		"no family":            {"--from ops/prometheus --to [fd00::1]:80", "policy check: ops/prometheus and [fd00::1] have no addresses of the same family"},
		"no --to":              {"--from shop/web", "policy check: want --from NAMESPACE/POD or --from ADDRESS, and --to NAMESPACE/POD:PORT or --to ADDRESS:PORT"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := runPolicy(t, service, append([]string{"check", "-f", policyCluster, "-f", "-"}, strings.Fields(c.args)...)...)
			switch {
			case strings.HasPrefix(c.want, "allowed"):
				require.NoError(t, err)
			case strings.HasPrefix(c.want, "denied"):
				require.Equal(t, output.Exit{Status: 3}, err)
			default:
				require.ErrorContains(t, err, c.want)
				return
			}
			require.Equal(t, c.want, strings.Split(out, "\n")[0])
		})
	}
}

// A pod that an EgressIP selects leaves the cluster with its address. The oldest EgressIP has the pod.
func TestPolicyCheckEgressIP(t *testing.T) {
	const ips = `---
{apiVersion: coe-bridge.io/v1, kind: EgressIP, metadata: {name: all, creationTimestamp: "2026-11-02T00:00:00Z"}, spec: {egressIPs: [192.168.0.201], namespaceSelector: {}}}
---
{apiVersion: coe-bridge.io/v1, kind: EgressIP, metadata: {name: shop, creationTimestamp: "2026-11-01T00:00:00Z"}, spec: {egressIPs: [192.168.0.200], namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: shop}}, podSelector: {matchLabels: {app: web}}}}
`
	check := func(from, to string) string {
		t.Helper()
		out, err := run(t, ips, "policy", "check", "-f", policyCluster, "-f", "-", "--from", from, "--to", to)
		require.NoError(t, err)
		require.NotContains(t, out, "skipped")
		return out
	}
	require.Contains(t, check("shop/web", "192.0.2.7:443"), "leaves with the egress address 192.168.0.200, EgressIP shop")
	require.Contains(t, check("ops/prometheus", "192.0.2.7:443"), "leaves with the egress address 192.168.0.201, EgressIP all")
	for from, to := range map[string]string{"shop/web": "shop/db:5432", "ops/exporter": "192.0.2.7:443", "192.0.2.7": "192.0.2.8:443", "ops/prometheus": "192.168.0.2:443"} {
		require.NotContains(t, check(from, to), "egress address", from)
	}
	out, err := run(t, ips, "policy", "check", "-f", policyCluster, "-f", "-", "--from", "shop/web", "--to", "192.0.2.7:443", "-o", "json")
	require.NoError(t, err)
	require.Contains(t, strings.Join(strings.Fields(out), " "), `"leavesBy": { "egressIP": "shop", "address": "192.168.0.200" }`)

	objects, err := os.ReadFile(policyCluster)
	require.NoError(t, err)
	with := file(t, "cluster.yaml", string(objects)+"- {apiVersion: coe-bridge.io/v1, kind: EgressIP, metadata: {name: shop}, spec: {egressIPs: [192.168.0.200], namespaceSelector: {}}}\n")
	out, err = run(t, "", "policy", "check", "--kubeconfig", apiServer(t, with), "--from", "shop/web", "--to", "192.0.2.7:443")
	require.NoError(t, err)
	require.Contains(t, out, "leaves with the egress address 192.168.0.200, EgressIP shop")

	_, err = run(t, `---
{apiVersion: coe-bridge.io/v1, kind: EgressIP, metadata: {name: two}, spec: {egressIPs: [192.168.0.200, 192.168.0.201], namespaceSelector: {}}}`, "policy", "check", "-f", "-", "--from", "a/b", "--to", "192.0.2.7:1")
	require.ErrorContains(t, err, "EgressIP two: spec.egressIPs: Invalid value")
}

// The answer is denied if one family is denied.
func TestPolicyCheckFamilies(t *testing.T) {
	out, err := run(t, `---
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: v6, namespace: shop}, spec: {podSelector: {matchLabels: {app: web}}, ingress: [{from: [{ipBlock: {cidr: "fd00::/64"}}]}]}}
---
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: out, namespace: shop}, spec: {podSelector: {}, egress: [{}], policyTypes: [Egress]}}
`, "policy", "check", "-f", policyCluster, "-f", "-", "--from", "shop/db", "--to", "shop/web:80")
	require.Equal(t, output.Exit{Status: 3}, err)
	require.Regexp(t, `(?m)^ingress +shop/web +10\.1\.0\.2 +denied +isolated, and no rule allows it: shop/deny-all, shop/v6$`, out)
	require.Regexp(t, `(?m)^ingress +shop/web +fd00::2 +allowed +spec\.ingress\[0\] of policy shop/v6$`, out)
}

// Pods name access lists as security profiles. A list that no file has closes them.
func TestPolicyOfProfiles(t *testing.T) {
	const pods = `---
{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: shop, annotations: {coe-bridge.io/security-profiles: web}}, spec: {nodeName: n1}, status: {podIP: 10.1.0.1}}
---
{apiVersion: v1, kind: Pod, metadata: {name: b, namespace: shop}, spec: {nodeName: n2}, status: {podIP: 10.1.0.2}}
`
	check := []string{"policy", "check", "-f", "-", "--from", "shop/b", "--to", "shop/a:80"}
	out, err := run(t, pods, check...)
	require.Equal(t, output.Exit{Status: 3}, err)
	require.Contains(t, out, "isolated, and no rule allows it: access-list web\n")
	require.Contains(t, out, "note: security profiles that are not in the files, so that the pods have no connections: web: name a file")

	lists := filepath.Join(t.TempDir(), "lists.json")
	require.NoError(t, os.WriteFile(lists, []byte(`{"ietf-access-control-list:access-lists": {"acl": [{"acl-type": "ipv4-acl", "acl-name": "web",
		"access-list-entries": {"ace": [{"rule-name": "http", "aclservice:direction": "direction-ingress", "matches": {"protocol": 6,
		"destination-port-range": {"lower-port": 80}}, "actions": {"permit": [null]}}]}}]}}`), 0o600))
	out, err = run(t, pods, append(check, "-f", lists)...)
	require.NoError(t, err)
	require.Contains(t, out, `ace "http" of access-list web`)
	require.NotContains(t, out, "note: security profiles")
	out, err = run(t, pods, "policy", "explain", "-f", "-", "-f", lists, "shop/a")
	require.NoError(t, err)
	require.Regexp(t, `ingress +access-list web +ace "http" +80/tcp +everyone by IPv4`, out)

	require.NoError(t, os.WriteFile(lists, []byte(`{"pod:pods": [{"uid": "8f2a6d5e-0000-4000-8000-000000000001"}]}`), 0o600))
	_, err = run(t, pods, append(check, "-f", lists)...)
	require.ErrorContains(t, err, "only access lists are read in this form")
}

// Manifests without addresses are enough for rules that select pods.
func TestPolicyOfManifestsByHand(t *testing.T) {
	const text = `---
{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop, labels: {app: web}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: db, namespace: data}, spec: {nodeName: n1}}
---
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: db, namespace: data}, spec: {ingress: [{from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: shop}}}]}, {from: [{ipBlock: {cidr: 0.0.0.0/0}}], ports: [{port: 80}]}]}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: api, namespace: shop}}
`
	out, err := run(t, text, "policy", "check", "-f", "-", "--from", "shop/web", "--to", "data/db:5432")
	require.NoError(t, err)
	require.Contains(t, out, "skipped: Deployment shop/api: its controller creates the pods; use the pods themselves")
	require.Regexp(t, `(?m)^ingress +data/db +- +allowed +spec\.ingress\[0\] of policy data/db$`, out)

	out, err = run(t, text, "policy", "reach", "-f", "-", "--to", "data/db")
	require.NoError(t, err)
	require.Regexp(t, `(?m)^- +shop/web +- +all$`, out)
	require.Regexp(t, `(?m)^- +node n1 +- +all$`, out)
	require.Regexp(t, `(?m)^- +outside 0\.0\.0\.0/0 +- +80/tcp$`, out)
	require.NotContains(t, out, "::/0")
}

// TestPolicyHints: an answer says why a rule or a policy has less effect than its author expects.
func TestPolicyHints(t *testing.T) {
	const text = `---
{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop}}
---
{apiVersion: v1, kind: Pod, metadata: {name: db, namespace: data, labels: {app: db}}}
---
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: db, namespace: data}, spec: {ingress: [{ports: [{port: sql}]}, {from: [{ipBlock: {cidr: 10.0.0.0/8}}]}]}}
---
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: web}, spec: {}}
---
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: web, namespace: shop}, spec: {policyTypes: [Egress], egress: [{ports: [{port: sql}]}, {to: [{ipBlock: {cidr: 10.0.0.0/8}}]}]}}
`
	out, err := runPolicy(t, text, "check", "-f", "-", "--from", "shop/web", "--to", "data/db:5432")
	require.Equal(t, output.Exit{Status: 3}, err)
	require.Contains(t, out, "note: policies that select no pod in the files: default/web\n")
	const denied = "denied    isolated, and no rule allows it: "
	require.Contains(t, out, denied+"data/db (data/db has no port sql/tcp; the address of shop/web is unknown: no ipBlock matches)\n")
	require.Contains(t, out, denied+"shop/web (the address of data/db is unknown: no ipBlock matches)\n")
}

func TestPolicyRefuses(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"nonsense", "policy nonsense: unknown; want check, explain or reach"},
		{"explain -f " + policyCluster, "policy explain: name one pod as NAMESPACE/POD"},
		{"explain shop/db", "policy explain: want --kubeconfig FILE, or -f FILE with what kubectl get nodes,ns,pods,svc,netpol -A -o yaml prints"},
		{"checks shop/db -f x", "policy checks: unknown; want check, explain or reach"},
		{"reach shop/db -f x", `policy reach: "shop/db": name a pod with --from or --to`},
		{"reach --to shop/db:5432 -f " + policyCluster, `policy reach: "shop/db:5432": name a pod as NAMESPACE/POD, without a port`},
		{"explain shop -f " + policyCluster, `policy explain: "shop": name a pod as NAMESPACE/POD`},
		{"explain shop/migrate -f " + policyCluster, "policy explain: pod shop/migrate has finished: it has no address, and no connections"},
		{"reach -f " + policyCluster, "policy reach: want either --from NAMESPACE/POD or --to NAMESPACE/POD"},
		{"reach --from shop/db --to shop/web -f " + policyCluster, "policy reach: want either"},
		{"reach --to shop/x -f " + policyCluster, "policy reach: pod shop/x is not in the files"},
		{"reach --to shop/x -f nowhere.yaml", "read manifests: open nowhere.yaml"},
	} {
		_, err := run(t, "", append([]string{"policy"}, strings.Fields(c.args)...)...)
		require.ErrorContains(t, err, c.want, c.args)
	}
	_, err := run(t, "---\n{apiVersion: v1, kind: List, items: []}", "policy", "explain", "-f", "-", "shop/x")
	require.ErrorContains(t, err, "policy explain: pod shop/x is not in the files: there are no pods")
	_, err = run(t, "kind: NetworkPolicy\napiVersion: networking.k8s.io/v1\nmetadata: {name: p}\nspec: {ingress: [{from: [{}]}]}", "policy", "reach", "-f", "-", "--to", "shop/x")
	require.ErrorContains(t, err, "standard input: document 1: NetworkPolicy p: spec.ingress[0].from[0]: Required value")
}

func TestPolicyOfTheHostNetwork(t *testing.T) {
	out, err := run(t, "", "policy", "explain", "-f", policyCluster, "ops/exporter")
	require.NoError(t, err)
	require.Contains(t, out, "ops/exporter is on the host network: it counts as its node, and no policy applies to it\n")
	out, err = run(t, "", "policy", "explain", "--rows", "-f", policyCluster, "ops/exporter")
	require.NoError(t, err)
	require.True(t, strings.HasSuffix(out, "\nno rows in OVN\n"), out)
}

// TestPolicyRowsOfNewPod: a pod without an address has no rows, and the answer says why.
func TestPolicyRowsOfNewPod(t *testing.T) {
	const pod = "---\n{apiVersion: v1, kind: Pod, metadata: {name: new, namespace: shop}, spec: {nodeName: n1}, status: {hostIP: 192.168.0.1}}"
	out, err := run(t, pod, "policy", "explain", "--rows", "-f", "-", "shop/new")
	require.NoError(t, err)
	require.Contains(t, out, "note: pod shop/new has no rows: NoAddress: ")
	require.Contains(t, out, "\nno rows in OVN\n")
	_, err = run(t, pod, "policy", "explain", "--rows", "--isolation", "some", "-f", "-", "shop/new")
	require.ErrorContains(t, err, `--isolation "some": want none or namespace`)
}

func TestPolicyCompletion(t *testing.T) {
	for _, args := range [][]string{{"check", "--from", ""}, {"reach", "--to", ""}, {"explain", ""}} {
		out, err := run(t, "", append([]string{"__complete", "policy", args[0], "-f", policyCluster}, args[1:]...)...)
		require.NoError(t, err)
		require.Contains(t, out, "shop/db\nshop/web\n", args)
	}
}

// The status of the process tells a denied connection from an error.
func TestPolicyExitStatus(t *testing.T) {
	program, err := os.Executable()
	require.NoError(t, err)
	for _, c := range []struct {
		from, to string
		status   int
		says     string // on stderr
	}{
		{"shop/web", "shop/db:5432", 0, ""},
		{"shop/web", "shop/db:80", 3, ""},
		{"shop/web", "shop/none:80", 1, "coe-bridge: policy check: pod shop/none is not in the files\n"},
	} {
		var stderr strings.Builder
		check := exec.CommandContext(t.Context(), program, "policy", "check", "-f", policyCluster, "--from", c.from, "--to", c.to)
		check.Env = append(os.Environ(), asProgram+"=1")
		check.Stderr = &stderr
		_ = check.Run()
		require.Equal(t, c.status, check.ProcessState.ExitCode(), c.to)
		require.Equal(t, c.says, stderr.String())
	}
}

// TestPolicyCheckFromOutside follows node ports and external addresses to the pods of their service.
func TestPolicyCheckFromOutside(t *testing.T) {
	const services = `---
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
---
{apiVersion: v1, kind: Node, metadata: {name: n3}, status: {addresses: [{type: InternalIP, address: 192.168.0.3}, {type: ExternalIP, address: 203.0.113.3}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web3, namespace: shop, labels: {app: web}}, spec: {nodeName: n3}, status: {podIP: 10.1.3.2}}
---
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: edge, namespace: shop}, spec: {podSelector: {matchLabels: {app: db}}, ingress: [{from: [{ipBlock: {cidr: 100.96.0.0/16}}]}]}}
---
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: client, namespace: shop}, spec: {podSelector: {matchLabels: {app: web}}, ingress: [{from: [{ipBlock: {cidr: 198.51.100.7/32}}]}]}}
`
	file := filepath.Join(t.TempDir(), "services.yaml")
	require.NoError(t, os.WriteFile(file, []byte(services), 0o600))
	for name, c := range map[string]struct{ args, want string }{
		"Cluster": {"--from 198.51.100.7 --to 192.168.0.2:30080",
			"allowed: 198.51.100.7 to 192.168.0.2:30080/tcp (node port of service shop/sql, externalTrafficPolicy Cluster)"},
		"Cluster, source":                        {"--from 198.51.100.7 --to 192.168.0.2:30080", "100.96.255.253"},
		"Cluster, endpoint":                      {"--from 198.51.100.7 --to 192.168.0.2:30080", "10.1.0.1:5432"},
		"Local":                                  {"--from 198.51.100.7 --to 192.168.0.2:30081", "allowed: 198.51.100.7 to 192.168.0.2:30081/tcp (node port of service shop/web, externalTrafficPolicy Local)"},
		"Local, another client":                  {"--from 198.51.100.8 --to 192.168.0.2:30081", "denied: "},
		"Local, another node":                    {"--from 198.51.100.7 --to 192.168.0.1:30081", "the service has no endpoint on the node that is asked, so nobody answers"},
		"Local, an ExternalIP":                   {"--from 198.51.100.7 --to 203.0.113.3:30081", "10.1.3.2:8080"},
		"Cluster, an ExternalIP":                 {"--from 198.51.100.7 --to 203.0.113.3:30080", "100.96.255.252"},
		"no endpoint":                            {"--from 198.51.100.7 --to 192.168.0.1:30082", "the service has no endpoint"},
		"external address":                       {"--from 198.51.100.7 --to 203.0.113.1:80 --external-addresses 203.0.113.0/24", "allowed: 198.51.100.7 to 203.0.113.1:80/tcp (external address of service shop/sql"},
		"not allowed":                            {"--from 198.51.100.7 --to 203.0.113.1:80", "note: service shop/sql: NotAllowed: external address 203.0.113.1 is in no prefix of --external-addresses"},
		"in the ranges":                          {"--from 198.51.100.7 --to 203.0.113.2:53/udp --external-addresses 203.0.113.0/24", "allowed: 198.51.100.7 to 203.0.113.2:53/udp"},
		"not in the ranges":                      {"--from 198.51.100.77 --to 203.0.113.2:53/udp --external-addresses 203.0.113.0/24", "no loadBalancerSourceRanges of the service has the client"},
		"another protocol":                       {"--from 198.51.100.7 --to 192.168.0.2:30080/udp", "node n2"},
		"not served":                             {"--from 198.51.100.7 --to 192.168.0.2:30080 --isolation namespace", "note: service shop/sql: NotEnforced: "},
		"a pod":                                  {"--from ops/prometheus --to 192.168.0.2:30080", "pods are not followed through nodes"},
		"IPv6":                                   {"--from 2001:db8::1 --to 192.168.0.2:30080", "it is not of the same family as 192.168.0.2"},
		"JSON":                                   {"--from 198.51.100.7 --to 192.168.0.2:30080 -o json", `"toPort": 5432`},
		"a node port of no service":              {"--from 198.51.100.7 --to 192.168.0.2:30099", "note: no service has the node port 30099/tcp"},
		"a node itself, on a port of no service": {"--from 198.51.100.7 --to 192.168.0.2:22", "policies do not apply to nodes"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := runPolicy(t, "", strings.Fields("check -f "+policyCluster+" -f "+file+" "+c.args)...)
			if err != nil {
				out += err.Error()
			}
			require.Contains(t, out, c.want)
		})
	}
}

// TestPolicyCheckFromANode follows programs of nodes through node ports and external addresses. Their source depends on the node
// that they ask.
func TestPolicyCheckFromANode(t *testing.T) {
	const services = `---
{apiVersion: v1, kind: Service, metadata: {name: sql, namespace: shop}, spec: {clusterIP: 10.96.0.10, selector: {app: db}, externalIPs: [203.0.113.1], ports: [{port: 80, targetPort: sql, nodePort: 30080}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {clusterIP: 10.96.0.11, externalTrafficPolicy: Local, selector: {app: web}, externalIPs: [203.0.113.2], ports: [{port: 80, targetPort: 8080, nodePort: 30081}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: mixed, namespace: shop}, spec: {clusterIP: 10.96.0.12, externalTrafficPolicy: Local, ports: [{port: 80, nodePort: 30082}]}}
---
{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: mixed-1, namespace: shop, labels: {kubernetes.io/service-name: mixed}}, addressType: IPv4,
  ports: [{port: 8080, protocol: TCP, name: ""}], endpoints: [{addresses: [10.1.0.2]}, {addresses: [198.51.100.9]}]}
---
{apiVersion: v1, kind: Service, metadata: {name: none, namespace: ops}, spec: {clusterIP: 10.96.0.13, externalTrafficPolicy: Local, ports: [{port: 80, nodePort: 30083}]}}
---
{apiVersion: v1, kind: Node, metadata: {name: n3}, status: {addresses: [{type: InternalIP, address: 192.168.0.3}, {type: ExternalIP, address: 203.0.113.3}]}}
---
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: nodes, namespace: shop}, spec: {podSelector: {matchLabels: {app: web}}, ingress: [{from: [{ipBlock: {cidr: 192.168.0.1/32}}]}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: many, namespace: ops}, spec: {clusterIP: 10.96.0.14, externalTrafficPolicy: Local, selector: {app: many}, ports: [{port: 80, nodePort: 30084}]}}
`
	var many strings.Builder // more than nodes have
	for n := range 2 * 33 {
		fmt.Fprintf(&many, "---\n{apiVersion: v1, kind: Pod, metadata: {name: p%d, namespace: ops, labels: {app: many}}, spec: {nodeName: n%d}, status: {podIP: 10.1.9.%d}}\n", n, 1+n%2, n)
	}
	file := filepath.Join(t.TempDir(), "services.yaml")
	require.NoError(t, os.WriteFile(file, []byte(services+many.String()), 0o600))
	for name, c := range map[string]struct {
		args string
		want []string // in the output
	}{
		"another node, Local":           {"--from 192.168.0.1 --to 192.168.0.2:30081", []string{"allowed: ", "egress 192.168.0.1 192.168.0.1 allowed", "10.1.0.2:8080", "spec.ingress[0] of policy shop/nodes"}},
		"a third node, Local":           {"--from 192.168.0.3 --to 192.168.0.2:30081", []string{"denied: ", "egress 192.168.0.3 192.168.0.3 allowed", "isolated, and no rule allows it"}},
		"no endpoint there":             {"--from 192.168.0.2 --to 192.168.0.1:30081", []string{"denied: ", "the service has no endpoint on the node that is asked, so nobody answers"}},
		"its own node, Local":           {"--from 192.168.0.1 --to 192.168.0.1:30081", []string{"allowed: ", "egress 192.168.0.1 192.168.0.1 allowed", "10.1.0.2:8080"}},
		"an endpoint that is not a pod": {"--from 192.168.0.1 --to 192.168.0.1:30082", []string{"denied: ", "100.96.0.", "10.1.0.2:8080", "198.51.100.9:8080"}},
		"the same, another node":        {"--from 192.168.0.1 --to 192.168.0.2:30082", []string{"allowed: ", "egress 192.168.0.1 192.168.0.1 allowed", "10.1.0.2:8080"}},
		"another node, Cluster":         {"--from 192.168.0.1 --to 192.168.0.2:30080", []string{"denied: ", "100.96.255.", "10.1.0.1:5432"}},
		"its own node, Cluster":         {"--from 192.168.0.1 --to 192.168.0.1:30080", []string{"allowed: ", "100.96.0.", "10.1.0.1:5432", "a pod and its own node always reach each other"}},
		"external address":              {"--from 192.168.0.1 --to 203.0.113.2:80 --external-addresses 203.0.113.0/24", []string{"denied: ", "external address", "100.96.0.", "10.1.0.2:8080"}},
		"no endpoint":                   {"--from 192.168.0.1 --to 192.168.0.2:30083", []string{"denied: ", "the service has no endpoint"}},
		"a pod on the network of node":  {"--from ops/exporter --to 192.168.0.2:30081", []string{"allowed: ", "192.168.0.2", "10.1.0.2:8080", "a pod and its own node always reach each other"}},
		"too many endpoints":            {"--from 192.168.0.1 --to 192.168.0.2:30084", []string{"allowed: ", "egress 192.168.0.1 100.96.255.", "10.1.9.1:80"}},
		"the same, its own node":        {"--from 192.168.0.1 --to 192.168.0.1:30084", []string{"allowed: ", "egress 192.168.0.1 100.96.0.", "10.1.9.1:80", "10.1.9.2:80"}},
		"an ExternalIP":                 {"--from 203.0.113.3 --to 192.168.0.2:30081", []string{"node n3 is followed only with internal addresses of nodes, in --from and --to"}},
		"to an ExternalIP":              {"--from 192.168.0.1 --to 203.0.113.3:30081", []string{"node n1 is followed only with internal addresses"}},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := runPolicy(t, "", strings.Fields("check -f "+policyCluster+" -f "+file+" "+c.args)...)
			if err != nil {
				out += err.Error()
			}
			for _, want := range c.want {
				require.Contains(t, strings.Join(strings.Fields(out), " "), strings.TrimSpace(want))
			}
		})
	}
}
