package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/coe-bridge/coe-bridge/mapping/status"
	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

const (
	podsPath     = "/restconf/config/pod:coe"
	poolsPath    = "/restconf/config/dhcp_allocation_pool:dhcp_allocation_pool"
	servicesPath = "/restconf/config/service:service-information"
)

// bridgeFor starts a bridge and has the commands ask it.
func bridgeFor(t *testing.T, options ...bridgetest.Option) *bridgetest.Bridge {
	b := bridgetest.Start(t, options...)
	b.AwaitSync(patience.Patience)
	t.Setenv("COE_BRIDGE_SERVER", b.URL())
	t.Setenv("COE_BRIDGE_PASSWORD", bridgetest.Password)
	return b
}

func post(t *testing.T, b *bridgetest.Bridge, path, body string) {
	t.Helper()
	status, text := b.Do(http.MethodPost, path, body)
	require.Equal(t, http.StatusNoContent, status, text)
}

// tell posts a little of everything: what is mapped, and what has a problem.
func tell(t *testing.T, b *bridgetest.Bridge) {
	t.Helper()
	post(t, b, poolsPath, pool)
	post(t, b, poolsPath, `{"network": [{"network-id": "services", "allocation-pool": [{"subnet": "10.96.0.0/24"}]}]}`)
	post(t, b, podsPath, web)
	post(t, b, podsPath, samplePod)
	post(t, b, podsPath, `{"pods": [{"uid": "8f2a6d5e-0000-4000-8000-000000000002", "name": "api", "network-NS": "shop", "host-ip-address": "192.168.33.13",
		"interface": [{"uid": "8f2a6d5e-0000-4000-8000-000000000002"}, {"uid": "8f2a6d5e-0000-4000-8000-000000000003", "ip-address": "7.7.7.7"}]}]}`)
	post(t, b, servicesPath, sampleService)
	post(t, b, servicesPath, `{"services": [{"uid": "8f2a6d5e-0000-4000-8000-00000000000a", "name": "web",
		"service-ports": [{"name": "http", "port": 80, "target-port": "8080"}], "endpoints": ["8f2a6d5e-0000-4000-8000-000000000001"]}]}`)
	require.Eventually(t, func() bool {
		out, err := run(t, "", "get", "leases", "-o", "json")
		var leases []status.Lease
		return err == nil && json.Unmarshal([]byte(out), &leases) == nil && len(leases) == 3
	}, patience.Patience, 10*time.Millisecond)
	b.AwaitSync(patience.Patience)
	require.Eventually(t, func() bool {
		out, err := run(t, "", "get", "pods")
		return err == nil && !strings.Contains(out, "pending") && !strings.Contains(out, "programmed")
	}, patience.Patience, 10*time.Millisecond, "what the backend has is confirmed")
}

// requireFormats checks that a command prints the same in JSON and in YAML, and
// returns the JSON.
func requireFormats(t *testing.T, args ...string) string {
	t.Helper()
	asJSON, err := run(t, "", append(args, "-o", "json")...)
	require.NoError(t, err)
	asYAML, err := run(t, "", append(args, "-o", "yaml")...)
	require.NoError(t, err)
	converted, err := yaml.YAMLToJSON([]byte(asYAML))
	require.NoError(t, err)
	require.JSONEq(t, asJSON, string(converted))
	return asJSON
}

func TestGetOfNothing(t *testing.T) {
	bridgeFor(t)
	for name, says := range map[string]string{
		"elan-instances": "no elan-instances: no pod is mapped\n",
		"vpn-instances":  "no vpn-instances: no pod is mapped\n",
		"interfaces":     "no interfaces: no pod is mapped\n",
		"pods":           "no pods; create some with coe-bridge apply -f FILE, or follow a cluster with serve --kubeconfig\n",
		"services":       "no services; create some with coe-bridge apply -f FILE\n",
		"pools":          "no pools; create some with coe-bridge apply -f FILE\n",
		"leases":         "no leases: no pod has an address\n",
		"problems":       "no problems\n",
	} {
		t.Run(name, func(t *testing.T) {
			out, err := run(t, "", "get", name)
			require.NoError(t, err)
			require.Equal(t, says, out)
			require.JSONEq(t, "[]", requireFormats(t, "get", name))
		})
	}
	out, err := run(t, "", "status")
	require.NoError(t, err)
	require.Regexp(t, `^memory: in sync\nSCOPE +STATE .*\n\(cluster\) +in sync +\d+ +\d+ +1/1 +0 +-\n$`, out)
}

func TestGet(t *testing.T) {
	b := bridgeFor(t)
	tell(t, b)
	for name, want := range map[string]string{
		"elan-instances": `NAME SEGMENT ID CONFIRMED
			192.168.33.12:default vxlan 70000 yes
			192.168.33.13:shop vxlan 70001 yes
			`,
		"vpn-instances": `NAME RD TARGETS CONFIRMED
			default 100:2 100:2,100:1 yes
			shop 100:3 100:3,100:1 yes
			`,
		"interfaces": `NAME ELAN MAC ADDRESSES PORT CONFIRMED
			default:web 192.168.33.12:default 0a:58:0a:0b:02:02 10.11.2.2 tap218c0ecd-49 yes
			shop:api 192.168.33.13:shop 0a:58:0a:0b:02:0a 10.11.2.10 tap1038d0a5-4d yes
			shop:api:8f2a6d5e-0000-4000-8000-000000000003 192.168.33.13:shop 0a:58:07:07:07:07 7.7.7.7 tap0dd6bff9-95 yes
			`,
		"pods": `NAMESPACE NAME UID NODE ADDRESS SOURCE STATE
			default - ac092d9b-e9eb-bae2-eed8-74aca2b7fa9c - - restconf problem: NoName
			default web 8f2a6d5e-0000-4000-8000-000000000001 192.168.33.12 10.11.2.2 restconf confirmed
			shop api 8f2a6d5e-0000-4000-8000-000000000002 192.168.33.13 10.11.2.10,7.7.7.7 restconf confirmed
			`,
		"services": `NAMESPACE NAME UID CLUSTER ADDRESS NODE PORTS OTHER ADDRESSES POLICY READY PROBLEM
			default - eeafffb7-d9fc-aaed-fbc9-8af8bfaacdd9 5.21.5.0 tcp - - - 0 NoEndpoint
			default web 8f2a6d5e-0000-4000-8000-00000000000a 10.96.0.2 80/tcp - - - 1 -
			`,
		"pools": `NETWORK SUBNET FROM TO GATEWAY IN USE BLOCKS PODS THAT FIT
			default 10.11.2.0/24 - - - 2 2 238
			services 10.96.0.0/24 - - - 1 0 -
			`,
		"leases": `INTERFACE ADDRESS BLOCK MAC NODE RELEASED
			default:web 10.11.2.2 10.11.2.0/29 0a:58:0a:0b:02:02 192.168.33.12 -
			shop:api 10.11.2.10 10.11.2.8/29 0a:58:0a:0b:02:0a 192.168.33.13 -
			shop:api:8f2a6d5e-0000-4000-8000-000000000003 7.7.7.7 169.254.1.1/32 0a:58:07:07:07:07 192.168.33.13 -
			`,
		"problems": `NAMESPACE KIND NAME UID REASON MESSAGE
			default pod - ac092d9b-e9eb-bae2-eed8-74aca2b7fa9c NoName the pod has no name, so its interface can't be named; send name
			default pod - ac092d9b-e9eb-bae2-eed8-74aca2b7fa9c NotEnforced network-id of an interface has no effect: the namespace and the node decide on the network
			default service - eeafffb7-d9fc-aaed-fbc9-8af8bfaacdd9 NoEndpoint endpoint afbcf0eb-fc3f-acea-a438-5cfdfcefbcb0 is not a pod of namespace default with a network; send the pod, with its node
			`,
	} {
		t.Run(name, func(t *testing.T) {
			out, err := run(t, "", "get", name)
			require.NoError(t, err)
			requireWords(t, want, out)
			var list []map[string]any
			require.NoError(t, json.Unmarshal([]byte(requireFormats(t, "get", name)), &list))
			require.NotEmpty(t, list)
			if name == "elan-instances" || name == "vpn-instances" || name == "interfaces" {
				require.Equal(t, true, list[0]["confirmed"])
			}
		})
	}
	t.Run("singular", func(t *testing.T) {
		out, err := run(t, "", "get", "pod")
		require.NoError(t, err)
		require.Contains(t, out, "web")
	})
	t.Run("status", func(t *testing.T) {
		out, err := run(t, "", "status")
		require.NoError(t, err)
		require.Regexp(t, `\ndefault +in sync +\d+ +\d+ +(\d+)/\d+ +3 +-\nshop +in sync`, out)
		var st status.Status
		require.NoError(t, json.Unmarshal([]byte(requireFormats(t, "status")), &st))
		require.True(t, st.InSync)
		require.Len(t, st.Problems, 3)
	})
}

func TestClientErrors(t *testing.T) {
	b := bridgeFor(t)
	https := "https" + strings.TrimPrefix(b.URL(), "http")
	stranger := httptest.NewServer(http.NotFoundHandler())
	defer stranger.Close()
	chatty := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }))
	defer chatty.Close()
	for _, c := range []struct {
		name, password string
		args           []string
		says           string
	}{
		{"no password", "", nil, "that this server knows; set COE_BRIDGE_PASSWORD, or name a file with --password-file"},
		{"wrong password", "wrong", nil, "this server knows no such user with this password; check --user admin"},
		{"wrong user", "admin", []string{"--user", "eve"}, "this server knows no such user with this password; check --user eve"},
		{"wrong password file", "", []string{"--password-file", file(t, "password", "wrong\n")}, "check --user admin, and COE_BRIDGE_PASSWORD or --password-file"},
		{"no password file", "", []string{"--password-file", "/nonexistent"}, "read --password-file: open /nonexistent"},
		{"nobody there", "admin", []string{"--server", "http://127.0.0.1:1"}, "connection refused; is the bridge running there? (--server)"},
		{"it speaks http", "admin", []string{"--server", https}, "it speaks http: --server " + b.URL()},
		{"no URL", "admin", []string{"--server", "127.0.0.1:8181"}, "want a URL like http://127.0.0.1:8181"},
		{"another server", "admin", []string{"--server", stranger.URL}, "the server there is not a coe-bridge; name one with --server"},
		{"a web site", "admin", []string{"--server", chatty.URL}, "is it a coe-bridge? (--server)"},
		{"no authority", "admin", []string{"--ca-file", "/nonexistent"}, "read --ca-file: stat /nonexistent"},
		{"bad authority", "admin", []string{"--ca-file", file(t, "ca.pem", "x")}, "no certificate in it"},
		{"no key", "admin", []string{"--cert", "c.pem"}, "--cert is given without --key"},
		{"no cert", "admin", []string{"--key", "k.pem"}, "--key is given without --cert"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("COE_BRIDGE_PASSWORD", c.password)
			for _, command := range [][]string{{"get", "pods"}, {"status"}, {"status", "-w"}} {
				out, err := run(t, "", append(command, c.args...)...)
				require.ErrorContains(t, err, c.says)
				require.Empty(t, out)
			}
		})
	}
	t.Run("password file", func(t *testing.T) {
		t.Setenv("COE_BRIDGE_PASSWORD", "wrong")
		_, err := run(t, "", "get", "pods", "--password-file", file(t, "password", "admin\r\nmore"))
		require.NoError(t, err)
	})
}

func TestWatch(t *testing.T) {
	b := bridgeFor(t)
	table, asYAML := start(t, "get", "pods", "-w"), start(t, "get", "pods", "-w", "-o", "yaml")
	table.await(t, "no pods")
	asYAML.await(t, "[]\n")
	post(t, b, podsPath, web)
	table.await(t, "problem: NoAddress")
	asYAML.await(t, "---\n- ")
	post(t, b, poolsPath, pool)
	table.await(t, "confirmed")
	for _, w := range []*background{table, asYAML} {
		w.interrupt()
		require.NoError(t, <-w.done)
	}
	require.Regexp(t, `no pods; [^\n]*\n\n\d\d:\d\d:\d\d\nNAMESPACE `, table.text())
}
