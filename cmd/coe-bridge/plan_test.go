package main

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/coe-bridge/coe-bridge/test/lab/serve"
)

// The samples of the Netvirt COE integration specification, section "REST API",
// as they are printed.
const (
	samplePool = `{"dhcp_allocation_pool:network": [{"dhcp_allocation_pool:allocation-pool": [{
      "dhcp_allocation_pool:subnet": "192.168.10.0/24", "dhcp_allocation_pool:allocate-to": "192.168.10.50",
      "dhcp_allocation_pool:gateway": "192.168.10.2", "dhcp_allocation_pool:allocate-from": "192.168.10.3"}],
    "dhcp_allocation_pool:network-id": "pod-namespace"}]}`
	samplePod = `{"pod:pods": [{"pod:version": "Some version", "pod:uid": "AC092D9B-E9Eb-BAE2-eEd8-74Aca2B7Fa9C",
    "pod:interface": [{"pod:uid": "7bA91A3A-f17E-2eBB-eDec-3BBBEa27DCa7", "pod:ip-address": "0.147.0.7",
      "pod:network-id": "fBAD80df-B0B4-0580-8D14-11FcaCED2ac6", "pod:network-type": "FLAT", "pod:segmentation-id": "0"}]}]}`
	sampleService = `{"service:service-information": {"service:services": [{"service:uid": "EeafFFB7-D9Fc-aAeD-FBc9-8Af8BFaacDD9",
    "service:cluster-ip-address": "5.21.5.0", "service:endpoints": ["AFbcF0EB-Fc3f-acea-A438-5CFDfCEfbcb0"]}]}}`

	nodes = `{"k8s-node:k8s-nodes": [{"uid": "8f2a6d5e-0000-4000-8000-000000000009", "host-name": "worker1", "internal-ip-address": "192.168.33.12"}]}`
	pool  = `{"dhcp_allocation_pool:network": [{"network-id": "default", "allocation-pool": [{"subnet": "10.11.2.0/24"}]}]}`
	web   = `{"pod:coe": {"pods": [{"uid": "8f2a6d5e-0000-4000-8000-000000000001", "name": "web", "host-ip-address": "192.168.33.12"}]}}`
)

func TestPlanOfPublishedSamples(t *testing.T) {
	const transit = "create   transit   100:1   joins the vpn-instances that share it\n"
	for _, c := range []struct{ name, document, want string }{
		{"pool", samplePool, "CHANGE   KIND      NAME    DETAILS\n" + transit},
		{
			"pod", samplePod, "CHANGE   KIND      NAME    DETAILS\n" + transit +
				"problem: pod ac092d9b-e9eb-bae2-eed8-74aca2b7fa9c of namespace default: NoName: " +
				"the pod has no name, so its interface can't be named; send name\n" +
				"problem: pod ac092d9b-e9eb-bae2-eed8-74aca2b7fa9c of namespace default: NotEnforced: " +
				"network-id of an interface has no effect: the namespace and the node decide on the network\n",
		},
		{
			"service", sampleService, `CHANGE   KIND          NAME                                                          DETAILS
create   transit       100:1                                                         joins the vpn-instances that share it
create   service       default eeafffb7-d9fc-aaed-fbc9-8af8bfaacdd9                  -
create   service-vip   default eeafffb7-d9fc-aaed-fbc9-8af8bfaacdd9 tcp 5.21.5.0:0   to no endpoint yet
problem: service eeafffb7-d9fc-aaed-fbc9-8af8bfaacdd9 of namespace default: NoEndpoint: ` +
				"endpoint afbcf0eb-fc3f-acea-a438-5cfdfcefbcb0 is not a pod of namespace default with a network; send the pod, with its node\n",
		},
		{
			"policy without pods", `{"k8s:k8s": {"network-policies": {"network-policy": [{"uuid": "8f2a6d5e-0000-4000-8000-000000000007", "name": "deny"}]}}}`,
			"CHANGE   KIND      NAME    DETAILS\n" + transit,
		},
		{
			"access list", `{"ietf-access-control-list:access-lists": {"acl": [{"acl-name": "web", "acl-type": "ietf-access-control-list:ipv4-acl"}]}}`,
			"CHANGE   KIND      NAME    DETAILS\n" + transit +
				"problem: access-list web: NotEnforced: the access list has no effect, because no pod and no namespace names it as a security profile: " +
				"name it with the annotation coe-bridge.io/security-profiles, or delete it\n",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, err := run(t, c.document, "plan", "-f", "-", "--only", "netvirt")
			mapped := strings.Count(c.want, "problem: ") == strings.Count(c.want, ": NotEnforced: ")
			require.Equal(t, mapped, err == nil, err)
			require.Equal(t, c.want, out)
		})
	}
}

const planOfWeb = `CHANGE   KIND               NAME                               DETAILS
create   transit            100:1                              joins the vpn-instances that share it
create   node               192.168.33.12                      worker1
create   node-network       100.96.0.0/16                      gateway 100.96.0.1
create   management-port    192.168.33.12                      100.96.0.2, 0a:58:64:60:00:02
create   elan-instance      192.168.33.12:default              vxlan 70000
create   vpn-instance       default                            rd 100:2 shares 100:1
create   subnet             192.168.33.12:default 10.11.2.1/32 gateway 10.11.2.1, vpn default
create   interface          default:web                        port tap
create   elan-interface     default:web                        elan 192.168.33.12:default
create   static-mac-entry   default:web 10.11.2.2              0a:58:0a:0b:02:02
create   vpn-interface      default:web                        vpn default
create   adjacency          default:web 10.11.2.2              0a:58:0a:0b:02:02, gateway 10.11.2.1
`

// A pod with node and pool is mapped wholly, from files and in any order of them.
func TestPlanOfPodWithNodeAndPool(t *testing.T) {
	files := []string{file(t, "web.json", web), file(t, "pool.json", pool), file(t, "nodes.json", nodes)}
	out, err := run(t, "", "plan", "--only", "netvirt", "-f", files[0], "-f", files[1], "-f", files[2])
	require.NoError(t, err)
	requireWords(t, planOfWeb, out)
	again, err := run(t, "", "plan", "--only", "netvirt", "-f", files[2], "-f", files[1], "-f", files[0])
	require.NoError(t, err)
	require.Equal(t, out, again)

	isolated, err := run(t, "", "plan", "--isolation", "namespace", "-f", files[0], "-f", files[1])
	require.NoError(t, err)
	require.NotContains(t, isolated, "transit")
}

// requireWords compares tables whatever the width of their columns and the
// computed end of a port's name.
func requireWords(t *testing.T, want, got string) {
	t.Helper()
	wantLines, gotLines := strings.Split(want, "\n"), strings.Split(got, "\n")
	require.Len(t, gotLines, len(wantLines), got)
	for i := range wantLines {
		w, g := strings.Join(strings.Fields(wantLines[i]), " "), strings.Join(strings.Fields(gotLines[i]), " ")
		if strings.HasSuffix(w, "port tap") {
			g = g[:min(len(g), len(w))]
		}
		require.Equal(t, w, g)
	}
}

func TestPlanAsJSONAndYAML(t *testing.T) {
	document := file(t, "documents.json", web)
	const unmapped = "plan: not everything can be mapped; problems: 1"
	asJSON, err := run(t, "", "plan", "-f", document, "-o", "json", "--only", "netvirt")
	require.EqualError(t, err, unmapped)
	var p map[string]any
	require.NoError(t, json.Unmarshal([]byte(asJSON), &p))
	problem := p["problems"].([]any)[0].(map[string]any)
	require.Equal(t, "NoAddress", problem["reason"])
	require.Equal(t, "web", problem["name"])
	delete(p, "problems")
	require.Equal(t, map[string]any{
		"changes": []any{map[string]any{"verb": "create", "kind": "transit", "name": "100:1", "scope": "(cluster)"}},
		"netvirt": map[string]any{"coe-netvirt:transits": map[string]any{"transit": []any{map[string]any{"route-target": "100:1"}}}},
		"skipped": []any{},
	}, p)
	asYAML, err := run(t, "", "plan", "-f", document, "-o", "yaml", "--only", "netvirt")
	require.EqualError(t, err, unmapped)
	converted, err := yaml.YAMLToJSON([]byte(asYAML))
	require.NoError(t, err)
	require.JSONEq(t, asJSON, string(converted))
	asJSON, err = run(t, "", "plan", "-f", document, "-o", "json", "--only", "ovn")
	require.EqualError(t, err, unmapped)
	var rows struct{ OVN []map[string]any }
	require.NoError(t, json.Unmarshal([]byte(asJSON), &rows))
	require.Len(t, rows.OVN, 3)
	require.Equal(t, "Logical_Router", rows.OVN[0]["table"])
	require.Equal(t, "transit:100:1", rows.OVN[0]["name"])
	require.Equal(t, "insert", rows.OVN[0]["operation"])
	require.NotContains(t, asJSON, `"changes"`)

	out, err := run(t, `{}`, "plan", "--isolation", "namespace", "-f", "-", "-o", "json")
	require.NoError(t, err)
	require.JSONEq(t, `{"changes": [], "netvirt": {}, "ovn": [], "problems": [], "skipped": []}`, out)
	out, err = run(t, `{}`, "plan", "--isolation", "namespace", "-f", "-")
	require.NoError(t, err)
	require.Equal(t, "no changes\n\nno rows in OVN\n", out)
}

// Empty documents at the start of a file do not change its plan.
func TestPlanOfYAMLThatBeginsEmpty(t *testing.T) {
	const data = "pod:coe:\n  pods:\n    - {uid: 8f2a6d5e-0000-4000-8000-000000000001, name: web, host-ip-address: 192.168.33.12}\n"
	want, err := run(t, data, "plan", "-f", "-", "--pool", "10.11.2.0/24")
	require.NoError(t, err)
	require.Contains(t, want, "default:web")
	for _, empty := range []string{"---\n---\n", "# to come\n---\n", "null\n---\n---\n"} {
		got, err := run(t, empty+data, "plan", "-f", "-", "--pool", "10.11.2.0/24")
		require.NoError(t, err, "%q", empty)
		require.Equal(t, want, got, "%q", empty)
	}
}

func TestPlanOfBadDocuments(t *testing.T) {
	const uid = "8f2a6d5e-0000-4000-8000-000000000001"
	for _, c := range []struct {
		name, document string
		says           []string
	}{
		{"empty", "", []string{"plan standard input: it has no objects"}},
		{"a comment", "# nothing\n", []string{"plan standard input: it has no objects"}},
		{"no object", "[]", []string{`want one JSON object like {"pod:pods": […]}`}},
		{"broken", `{"pod:pods":`, []string{"unexpected end of JSON input"}},
		{"two documents", `{} {}`, []string{"after top-level value"}},
		{"unknown list", `{"pod:podz": []}`, []string{`"pod:podz"`, "pod:coe"}},
		{"unknown leaf", `{"pod:pods": [{"uid": "` + uid + `", "nam": "web"}]}`, []string{"/pod:coe/pods[uid='" + uid + "']", `"nam"`, "name"}},
		{"bad uuid", `{"pod:pods": [{"uid": "x"}]}`, []string{"/pod:coe/pods[1]/uid", `"x"`, "want a UUID"}},
		{"no key", `{"pod:pods": [{"name": "x"}]}`, []string{"/pod:coe/pods[1]", "want uid"}},
		{"bad address", `{"pod:pods": [{"uid": "` + uid + `", "host-ip-address": "1.2.3"}]}`, []string{"host-ip-address", `"1.2.3"`, "want an IPv4 or IPv6 address"}},
		{"colon", `{"pod:pods": [{"uid": "` + uid + `", "name": "a:b"}]}`, []string{uid, `name: "a:b" contains a colon`}},
		{"bad port", `{"service:services": [{"uid": "` + uid + `", "service-ports": [{"name": "a", "port": 70000}]}]}`, []string{uid, "service-ports/port"}},
		{"range outside", `{"dhcp_allocation_pool:network": [{"network-id": "a", "allocation-pool": [{"subnet": "10.0.0.0/24", "allocate-from": "10.0.1.1"}]}]}`, []string{`pool "a", subnet 10.0.0.0/24: allocate-from 10.0.1.1 lies outside the subnet`}},
		{"what is computed", `{"elan:elan-instances": {}}`, []string{`"elan:elan-instances" is not the name of input for a bridge`, "pod:coe"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, err := run(t, c.document, "plan", "-f", "-")
			require.Empty(t, out)
			for _, s := range c.says {
				require.ErrorContains(t, err, s)
			}
		})
	}
	good, bad := file(t, "good.json", web), file(t, "bad.json", "{")
	_, err := run(t, "", "plan", "-f", good, "-f", bad)
	require.ErrorContains(t, err, "plan "+bad+": ", "it names the file that is bad")
	require.NotContains(t, err.Error(), good)
	_, err = run(t, "", "plan", "-f", "/nonexistent")
	require.ErrorContains(t, err, "open /nonexistent: no such file or directory")
	_, err = run(t, "", "plan")
	require.ErrorContains(t, err, "name a file with -f, or - for standard input")
	_, err = run(t, "{}", "plan", "-f", "-", "--pool", "10.0.0.0")
	require.ErrorContains(t, err, `--pool: parse pool "10.0.0.0": "10.0.0.0" is not a subnet`)
	_, err = run(t, pool, "plan", "-f", "-", "--pool", "10.11.0.0/16")
	require.ErrorContains(t, err, "plan pools: ")
	_, err = run(t, "{}", "plan", "-f", "-", "--only", "rows")
	require.ErrorContains(t, err, "want netvirt, ovn, paths, ways or layout")
	_, err = run(t, "{}", "plan", "-f", "-", "--isolation", "some")
	require.ErrorContains(t, err, `--isolation "some": want none or namespace`)
}

// plan opens nothing: it works in a process that has standard input, output and
// error, and may open no file and no socket beside them.
func TestPlanTouchesNothing(t *testing.T) {
	program, err := serve.Build(t.Context(), t.TempDir())
	require.NoError(t, err)
	calls := t.TempDir() + "/calls"
	traced := func(document string, arguments ...string) string {
		arguments = append([]string{"-f", "-qq", "-e", "trace=connect,openat,creat,mkdirat,unlinkat,renameat", "-e", "signal=none", "-o", calls, program, "plan", "-f", "-"}, arguments...)
		plan := exec.CommandContext(t.Context(), "strace", arguments...)
		plan.Stdin = strings.NewReader(document)
		text, err := plan.CombinedOutput()
		exit, ok := errors.AsType[*exec.ExitError](err)
		require.True(t, ok, string(text))
		require.Equal(t, 1, exit.ExitCode(), "not everything can be mapped: %s", text)
		made, err := os.ReadFile(calls)
		require.NoError(t, err)
		// The runtime reads what the kernel says, and a library the program itself.
		call := regexp.MustCompile(`^\d+ +[a-z]+\(`)
		allowed := regexp.MustCompile(`^\d+ +openat\(AT_FDCWD, "(/proc/|/sys/|` + regexp.QuoteMeta(program) + `)[^ ]* O_RDONLY`)
		calls := 0
		for line := range strings.Lines(string(made)) {
			if call.MatchString(line) { // else strace tells of a process
				require.Regexp(t, allowed, line)
				calls++
			}
		}
		require.NotZero(t, calls)
		return string(text)
	}
	require.Contains(t, traced(web), "problem: pod web of namespace default: NoAddress")
	require.Contains(t, traced("apiVersion: v1\nkind: Pod\nmetadata: {name: web}\n", "--pool", "10.11.0.0/16"), "problem: pod web of namespace default: NoNode")
}
