package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/coe-bridge/coe-bridge/cmd/bridge"
	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

const (
	webUID = "8f2a6d5e-0000-4000-8000-000000000001"
	apiUID = "8f2a6d5e-0000-4000-8000-000000000002"
)

// sheet has two pods and a pool, in YAML.
const sheet = `# what we have
pod:coe:
  pods:
  - uid: 8f2a6d5e-0000-4000-8000-000000000001
    name: web
    network-NS: shop
    host-ip-address: &node 192.168.33.12
    interface:
    - uid: 8f2a6d5e-0000-4000-8000-000000000001
  - uid: 8f2a6d5e-0000-4000-8000-000000000002
    name: api
    network-NS: shop
    host-ip-address: *node
---
dhcp_allocation_pool:network:
- network-id: default
  allocation-pool:
  - subnet: 10.11.2.0/24
`

// published are the samples of the specification.
func published(t *testing.T) map[string]string {
	t.Helper()
	return map[string]string{
		"pool": `{"dhcp_allocation_pool:network": [{"dhcp_allocation_pool:allocation-pool": [{
			"dhcp_allocation_pool:subnet": "192.168.10.0/24", "dhcp_allocation_pool:allocate-to": "192.168.10.50",
			"dhcp_allocation_pool:gateway": "192.168.10.2", "dhcp_allocation_pool:allocate-from": "192.168.10.3"}],
			"dhcp_allocation_pool:network-id": "pod-namespace"}]}`,
		"pod":     samplePod,
		"service": sampleService,
	}
}

func TestApply(t *testing.T) {
	b := bridgeFor(t)
	path := file(t, "sheet.yaml", sheet)
	out, err := run(t, "", "apply", "-f", path, "--dry-run", "server")
	require.NoError(t, err)
	require.Equal(t, "pods/"+webUID+" (shop/web) created (server dry run)\npods/"+apiUID+" (shop/api) created (server dry run)\npools/default created (server dry run)\n", out)
	require.False(t, b.Get("config/pod:coe", nil), "a dry run writes nothing")

	out, err = run(t, "", "apply", "-f", path)
	require.NoError(t, err)
	require.Equal(t, "pods/"+webUID+" (shop/web) created\npods/"+apiUID+" (shop/api) created\npools/default created\n", out)
	out, err = run(t, sheet, "apply", "-f", "-")
	require.NoError(t, err)
	require.Equal(t, 3, strings.Count(out, " unchanged\n"), out)

	changed := strings.Replace(sheet, "name: api", "name: API", 1)
	out, err = run(t, changed, "apply", "-f", "-", "-o", "json")
	require.NoError(t, err)
	var results []map[string]any
	require.NoError(t, json.Unmarshal([]byte(out), &results))
	require.Equal(t, map[string]any{"kind": "pods", "key": apiUID, "name": "shop/API", "result": "configured", "file": "standard input", "line": 10.0}, results[1])
	require.Equal(t, "unchanged", results[0]["result"])

	t.Run("one entry alone", func(t *testing.T) {
		one := `{"pods": [{"uid": "` + strings.ToUpper(apiUID) + `", "name": "api"}]}`
		for _, says := range []string{"configured", "unchanged"} {
			out, err := run(t, one, "apply", "-f", "-")
			require.NoError(t, err)
			require.Equal(t, "pods/"+apiUID+" (default/api) "+says+"\n", out)
		}
	})
	t.Run("delete", func(t *testing.T) {
		out, err := run(t, "", "delete", "-f", path, "--dry-run", "server")
		require.NoError(t, err)
		require.Equal(t, 3, strings.Count(out, " deleted (server dry run)\n"), out)
		out, err = run(t, "", "delete", "-f", path)
		require.NoError(t, err)
		require.Equal(t, 3, strings.Count(out, " deleted\n"), out)
		_, err = run(t, "", "delete", "-f", path)
		require.ErrorContains(t, err, path+":4: pods "+webUID+": there is no such data")
		out, err = run(t, "", "delete", "-f", path, "--ignore-not-found")
		require.NoError(t, err)
		require.Equal(t, 3, strings.Count(out, " not found\n"), out)
	})
}

// The specification's samples are taken as they are printed, and shown again in a form
// that is taken too.
func TestApplyPublishedSamples(t *testing.T) {
	bridgeFor(t)
	for kind, sample := range published(t) {
		t.Run(kind, func(t *testing.T) {
			out, err := run(t, sample, "apply", "-f", "-")
			require.NoError(t, err)
			require.Regexp(t, "^"+kind+`s/\S+ .*created\n$`, strings.Replace(out, " created", "  created", 1))
			for _, format := range []string{"yaml", "json"} {
				shown, err := run(t, "", "get", kind, "--documents", "-o", format)
				require.NoError(t, err)
				out, err := run(t, shown, "apply", "-f", "-")
				require.NoError(t, err, shown)
				require.Regexp(t, ` unchanged\n$`, out)
			}
		})
	}
}

// Apply reports the line of an error, and writes nothing of that file.
func TestApplySaysWhere(t *testing.T) {
	b := bridgeFor(t)
	for name, c := range map[string]struct {
		text string
		says []string
	}{
		"invalid value": {
			strings.Replace(sheet, "*node", "192.168.33", 1),
			[]string{`standard input:13: pods ` + apiUID + `: host-ip-address: "192.168.33" is not a valid value: want an IPv4 or IPv6 address`},
		},
		"two at once": {
			strings.Replace(strings.Replace(sheet, "*node", "192.168.33", 1), "10.11.2.0/24", "10.11.2.0/33", 1),
			[]string{"standard input:13: ", "standard input:18: network default: subnet"},
		},
		"unknown member": {
			strings.Replace(sheet, "    name: web", "    nome: web", 1),
			[]string{`standard input:5: pods ` + webUID + `: no member "nome" in pods: want `},
		},
		"unknown member of an interface": {
			strings.Replace(sheet, "    - uid: 8f2a6d5e-0000-4000-8000-000000000001", "    - uid: 8f2a6d5e-0000-4000-8000-000000000001\n      adr: x", 1),
			[]string{`standard input:10: `, `no member "adr" in interface`},
		},
		"what only the bridge knows": {
			strings.Replace(sheet, "- subnet: 10.11.2.0/24", "- subnet: 10.11.2.0/24\n    allocate-from: 10.12.0.1", 1),
			[]string{`standard input:`, `allocate-from`},
		},
		"a name that is too long": {
			strings.Replace(sheet, "name: api", "name: "+strings.Repeat("a", 300), 1),
			[]string{`standard input:11: pods ` + apiUID + `: name: `},
		},
		"bad key":         {strings.Replace(sheet, apiUID, "api", 1), []string{`standard input:10: pods api: `}},
		"no key":          {strings.Replace(sheet, "uid: "+apiUID, "name: x", 1), []string{"standard input:11: \"name\" is there twice, first at line 10"}},
		"without its key": {"pods:\n- name: web\n", []string{"standard input:2: pods: an entry without its key: want uid"}},
		"unknown top":     {"elan:elan-instances: {}\n", []string{`standard input:1: "elan:elan-instances" is nothing that is written to a bridge: want pod:coe, `}},
		"twice":           {sheet + "---\npods: [{uid: " + apiUID + "}]\n", []string{"standard input:20: pods " + apiUID + " is there already, at standard input:10"}},
		"a manifest":      {"kind: Pod\napiVersion: v1\n", []string{"standard input:1: it is a manifest for Kubernetes"}},
		"no YAML":         {"pods: [\n{uid: }}\n", []string{"standard input:", "no YAML"}},
		"no JSON":         {"{\"pods\": [\n}", []string{"standard input:2: "}},
		"nothing":         {"---\n---\n", []string{"read -: it has no data"}},
		"a word":          {"pods\n", []string{"standard input:1: want an object with data"}},
		"state":           {"network: [{network-id: x, allocations: [{subnet: 10.0.0.0/8}]}]", []string{"standard input:1: network x: allocations is state"}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, how := range []string{"none", "server"} {
				out, err := run(t, c.text, "apply", "-f", "-", "--dry-run", how)
				require.Empty(t, out)
				for _, says := range c.says {
					require.ErrorContains(t, err, says)
				}
			}
			require.False(t, b.Get("config/pod:coe", nil), "nothing is written")
			require.False(t, b.Get("config/dhcp_allocation_pool:dhcp_allocation_pool", nil), "nothing is written")
		})
	}
}

func TestApplyDryRunOfClient(t *testing.T) {
	t.Setenv("COE_BRIDGE_SERVER", "http://127.0.0.1:1")
	out, err := run(t, sheet, "apply", "-f", "-", "--dry-run", "client")
	require.NoError(t, err)
	require.Equal(t, 3, strings.Count(out, " valid (client dry run)\n"), out)
	_, err = run(t, strings.Replace(sheet, "*node", "192.168.33", 1), "apply", "-f", "-", "--dry-run", "client")
	require.ErrorContains(t, err, "standard input:13: ")
	_, err = run(t, sheet, "apply", "-f", "-")
	require.ErrorContains(t, err, "is the bridge running there? (--server)")
}

func TestApplyOfPolicies(t *testing.T) {
	bridgeFor(t)
	policies := "network-policy:\n- {uuid: " + webUID + ", name: deny}\n- {uuid: " + apiUID + "}\n"
	out, err := run(t, policies+"---\npods: [{uid: "+webUID+"}]\n", "apply", "-f", "-")
	require.NoError(t, err)
	require.Contains(t, out, "policies/"+webUID+" (deny) created", out)
	out, err = run(t, "", "get", "policies")
	require.NoError(t, err)
	requireWords(t, "NAME UID\n- "+apiUID+"\ndeny "+webUID+"\n", out)
}

func TestApplyFolders(t *testing.T) {
	bridgeFor(t)
	dir := t.TempDir()
	for name, text := range map[string]string{
		"2.json": `{"pod:pods": [{"uid": "` + apiUID + `"}]}`, "1.yaml": "pods: [{uid: " + webUID + "}]", "3.txt": "no", "4.yml": "pods: [{uid: x}]",
	} {
		require.NoError(t, os.WriteFile(dir+"/"+name, []byte(text), 0o600))
	}
	out, err := run(t, "", "apply", "-f", dir)
	require.ErrorContains(t, err, dir+"/4.yml:1: pods x: ")
	require.Equal(t, "pods/"+webUID+" created\npods/"+apiUID+" created\n", out, "other files are applied")
	_, err = run(t, "", "apply", "-f", t.TempDir())
	require.ErrorContains(t, err, "no file in it ends in .yaml, .yml or .json")
	_, err = run(t, "", "apply", "-f", dir+"/none")
	require.ErrorContains(t, err, "no such file")
	_, err = run(t, "", "apply")
	require.ErrorContains(t, err, "name a file with -f")
}

// Concurrent runs that apply different entries lose nothing. If two runs apply the same
// entry, one of them reports the conflict or replaces what the other wrote.
func TestApplyConcurrently(t *testing.T) {
	b := bridgeFor(t)
	const clients, rounds = 4, 5
	var all sync.WaitGroup
	failed := make(chan error, clients*rounds)
	for i := range clients {
		all.Go(func() {
			for round := range rounds {
				text := fmt.Sprintf("pods:\n- {uid: 8f2a6d5e-0000-4000-8000-%012d, name: n%d}\n- {uid: 8f2a6d5e-0000-4000-9000-%012d, name: n%d}\n", i, round, i, round)
				if _, err := run(t, text, "apply", "-f", "-"); err != nil && !strings.Contains(err.Error(), "other clients keep writing") {
					failed <- err
				}
			}
		})
	}
	all.Wait()
	close(failed)
	for err := range failed {
		require.NoError(t, err)
	}
	var tree struct {
		Coe struct {
			Pods []struct{ UID, Name string }
		}
	}
	require.True(t, b.Get("config/pod:coe", &tree.Coe))
	require.Len(t, tree.Coe.Pods, 2*clients)
}

// racer is a bridge before which somebody else writes, right before each patch.
func racer(t *testing.T, b *bridgetest.Bridge, write func()) {
	t.Helper()
	t.Setenv("COE_BRIDGE_SERVER", between(t, b.URL(), func(r *http.Request) {
		if r.Method == http.MethodPatch {
			write()
		}
	}))
}

func TestApplyToWhatChangesMeanwhile(t *testing.T) {
	b := bridgeFor(t)
	_, err := run(t, sheet, "apply", "-f", "-")
	require.NoError(t, err)
	changed := strings.NewReplacer("name: web", "name: www", "name: api", "name: ape").Replace(sheet)
	n := 0
	put := func(uid, name string) {
		n++
		status, answer := b.Do(http.MethodPut, "/rests/data/pod:coe/pods="+uid, `{"pod:pods": [{"uid": "`+uid+`", "name": "`+name+`"}]}`)
		require.Less(t, status, 300, answer)
	}
	t.Run("something else", func(t *testing.T) {
		racer(t, b, func() {
			if n == 0 {
				put("8f2a6d5e-0000-4000-8000-00000000000f", "else")
			}
		})
		out, err := run(t, changed, "apply", "-f", "-")
		require.NoError(t, err)
		require.Equal(t, 2, strings.Count(out, " configured\n"), out)
	})
	t.Run("the entry", func(t *testing.T) {
		racer(t, b, func() { put(apiUID, "other") })
		out, err := run(t, sheet, "apply", "-f", "-")
		require.ErrorContains(t, err, "another client has changed pods/"+apiUID+" (shop/api), so nothing of the file was written")
		require.Empty(t, out)
		var pods []struct{ Name string }
		require.True(t, b.Get("config/pod:coe/pods/"+apiUID, &pods))
		require.Equal(t, "other", pods[0].Name)
		require.True(t, b.Get("config/pod:coe/pods/"+webUID, &pods))
		require.Equal(t, "www", pods[0].Name, "nothing of the file is written")
	})
	t.Run("a new entry", func(t *testing.T) {
		const uid = "8f2a6d5e-0000-4000-8000-0000000000aa"
		racer(t, b, func() { put(uid, "first") })
		_, err := run(t, "pods: [{uid: "+uid+", name: second}]", "apply", "-f", "-")
		require.ErrorContains(t, err, "another client has changed")
	})
	t.Run("an entry that goes", func(t *testing.T) {
		racer(t, b, func() { b.Do(http.MethodDelete, "/rests/data/pod:coe/pods="+webUID, "") })
		out, err := run(t, "pods: [{uid: "+webUID+", name: late}]", "apply", "-f", "-")
		require.ErrorContains(t, err, "another client has changed pods/"+webUID)
		require.Empty(t, out)
		require.False(t, b.Get("config/pod:coe/pods/"+webUID, nil), "what is deleted does not come back")
	})
	t.Run("all the time", func(t *testing.T) {
		racer(t, b, func() { put("8f2a6d5e-0000-4000-8000-00000000000f", fmt.Sprint(n)) })
		_, err := run(t, sheet, "apply", "-f", "-")
		require.ErrorContains(t, err, "other clients keep writing")
	})
}

// What Kubernetes says is Kubernetes' to change.
func TestApplyAndDeleteOfWhatKubernetesSays(t *testing.T) {
	b := bridgeFor(t, func(cfg *bridge.Config) {
		cfg.Kubernetes = bridge.KubernetesConfig{API: &rest.Config{Host: smallCluster(t)}}
	})
	var pods struct {
		Pods []struct{ UID, Name string }
	}
	require.Eventually(t, func() bool {
		return b.Get("config/pod:coe", &pods) && len(pods.Pods) > 0
	}, patience.Patience, 20*time.Millisecond)
	uid := pods.Pods[0].UID
	shown, err := run(t, "", "get", "pods", uid, "--documents")
	require.NoError(t, err)
	out, err := run(t, shown, "apply", "-f", "-")
	require.NoError(t, err)
	require.Contains(t, out, " unchanged\n")
	_, err = run(t, "pods:\n- uid: "+uid+"\n  name: mine\n", "apply", "-f", "-")
	require.Regexp(t, `^standard input:2: pods `+uid+`: .*Kubernetes`, err.Error())
	_, err = run(t, "", "delete", "pod", uid)
	require.EqualError(t, err, "delete pod small/"+pods.Pods[0].Name+": it comes from Kubernetes (pod small/"+pods.Pods[0].Name+"): change it there with kubectl")
}

func TestDeleteByName(t *testing.T) {
	b := bridgeFor(t)
	_, err := run(t, sheet+`---
pods: [{uid: 8f2a6d5e-0000-4000-8000-000000000003, name: web, network-NS: other}]
`, "apply", "-f", "-")
	require.NoError(t, err)
	for _, c := range []struct{ args, says string }{
		{"pod web", "several have this name: pods/" + webUID + " (shop/web), pods/8f2a6d5e-0000-4000-8000-000000000003 (other/web); name one by its key"},
		{"pod shop/none", "delete pod shop/none: not found; coe-bridge get pods lists all"},
		{"pods shop/api nobody", "delete pod nobody: not found"},
		{"elan x", `"elan" is not a kind that clients write: want one of pods, services`},
		{"pod", "name files with -f, or a kind and names"},
		{"pod x -f y", "not both"},
		{"pod shop/web --dry-run client", "delete pod: names need a bridge, and --dry-run client asks none: name files with -f, or use --dry-run server"},
	} {
		t.Run(c.args, func(t *testing.T) {
			_, err := run(t, "", append([]string{"delete"}, strings.Fields(c.args)...)...)
			require.ErrorContains(t, err, c.says)
		})
	}
	out, err := run(t, "", "delete", "pod", "shop/web", "api")
	require.NoError(t, err)
	require.Equal(t, "pods/"+webUID+" (shop/web) deleted\npods/"+apiUID+" (shop/api) deleted\n", out)
	out, err = run(t, "", "delete", "pool", "default")
	require.NoError(t, err)
	require.Equal(t, "pools/default deleted\n", out)
	out, err = run(t, "", "delete", "pod", "gone", "--ignore-not-found")
	require.NoError(t, err)
	require.Empty(t, out)
	require.False(t, b.Get("config/pod:coe/pods/"+webUID, nil))
}

func TestGetByName(t *testing.T) {
	bridgeFor(t)
	_, err := run(t, sheet+"---\nk8s-nodes: [{uid: "+webUID+", host-name: worker-2}, {uid: "+apiUID+", host-name: worker-1, internal-ip-address: 192.168.33.12}]\n---\nservice:endpoints-info: {endpoints: [{uid: "+webUID+", name: web}, {uid: "+apiUID+", name: api, network-NS: shop}, {uid: 8f2a6d5e-0000-4000-8000-000000000003, name: api}]}\n", "apply", "-f", "-")
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		out, err := run(t, "", "get", "pods", "shop/web")
		return err == nil && regexp.MustCompile(`(?s)^NAMESPACE.*\nshop +web +`+webUID+`[^\n]*confirmed\n$`).MatchString(out)
	}, patience.Patience, 20*time.Millisecond)
	require.Eventually(t, func() bool {
		out, err := run(t, "", "get", "pods", "api")
		return err == nil && strings.Contains(out, "confirmed")
	}, patience.Patience, 20*time.Millisecond)
	var list []map[string]any
	require.NoError(t, json.Unmarshal([]byte(requireFormats(t, "get", "pods", "api")), &list))
	require.Len(t, list, 1)
	require.Equal(t, apiUID, list[0]["uid"])
	require.Contains(t, requireFormats(t, "get", "pools", "default"), "10.11.2.0/24")
	out, err := run(t, "", "get", "nodes")
	require.NoError(t, err)
	requireWords(t, "NAME UID ADDRESS\nworker-1 "+apiUID+" 192.168.33.12\nworker-2 "+webUID+" -\n", out)
	out, err = run(t, "", "get", "endpoints")
	require.NoError(t, err)
	requireWords(t, "NAMESPACE NAME UID\ndefault api 8f2a6d5e-0000-4000-8000-000000000003\ndefault web "+webUID+"\nshop api "+apiUID+"\n", out)
	for _, args := range []string{"get pods nobody", "get pods nobody --documents", "get elan-instances nobody"} {
		_, err = run(t, "", strings.Fields(args)...)
		require.ErrorContains(t, err, "nobody: not found; coe-bridge get ")
	}
	out, err = run(t, "", "__complete", "delete", "pod", "")
	require.NoError(t, err)
	require.Contains(t, out, "shop/web\t"+webUID+"\nshop/api\t"+apiUID+"\n")
	out, err = run(t, "", "__complete", "delete", "pod", "shop/api", "")
	require.NoError(t, err)
	require.NotContains(t, out, "shop/api")
	for name, says := range map[string]string{
		"shop/none":    "trace shop/none: not found; 2 other pods are in namespace shop; coe-bridge get pods lists them",
		"nowhere/none": "trace nowhere/none: not found; namespace nowhere has no pods; coe-bridge get pods lists all",
	} {
		_, err = run(t, "", "trace", name)
		require.EqualError(t, err, says)
	}
	_, err = run(t, "", "delete", "pod", "shop/api")
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, err := run(t, "", "trace", "shop/none")
		return err != nil && strings.Contains(err.Error(), "not found; 1 other pod is in namespace shop;")
	}, patience.Patience, 20*time.Millisecond)
	out, err = run(t, "", "__complete", "trace", "")
	require.NoError(t, err)
	require.Contains(t, out, "shop/web\t"+webUID+"\n")
	out, err = run(t, "", "__complete", "trace", "shop/web", "")
	require.NoError(t, err)
	require.NotContains(t, out, "shop/")
	out, err = run(t, "", "__complete", "watch", "")
	require.NoError(t, err)
	require.Contains(t, out, "endpoints\tEndpoints of services\n")
	out, err = run(t, "", "__complete", "get", "nodes", "")
	require.NoError(t, err)
	require.Contains(t, out, "worker-1\t")
}
