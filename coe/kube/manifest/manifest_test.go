package manifest_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/kube/manifest"
	"github.com/coe-bridge/coe-bridge/coe/state"
	"github.com/coe-bridge/coe-bridge/mapping/policy"
)

func readManifests(t *testing.T, texts ...string) *manifest.Set {
	t.Helper()
	var m manifest.Set
	for _, text := range texts {
		require.NoError(t, m.Read("a.yaml", strings.NewReader(text)))
	}
	return &m
}

const (
	podWeb = `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "labels": {"app": "web"}}, "spec": {"nodeName": "n1",
  "containers": [{"name": "c", "image": "i", "ports": [{"name": "http", "containerPort": 8080}]}]}}`
	serviceWeb = `{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": {"clusterIP": "10.96.0.10",
  "selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": "http"}]}}`
)

// Documents can have every form that kubectl accepts.
func TestReadForms(t *testing.T) {
	yamlPod := "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\n"
	yamlService := "apiVersion: v1\nkind: Service\nmetadata:\n  name: web\n  annotations:\n    text: |\n      x\n      ---\n      y\n"
	for name, text := range map[string]string{
		"JSON, one after another":   podWeb + "\n" + serviceWeb,
		"JSON in YAML":              "---\n" + podWeb + "\n---\n" + serviceWeb,
		"YAML":                      yamlPod + "---\n" + yamlService,
		"comments, empty documents": "# a\n---\n# b\n---\n" + yamlPod + "---\n---\n\n--- # c\n" + yamlService + "---\n",
		"ends of documents":         "---\n" + yamlPod + "...\n---\n" + yamlService + "...\n",
		"lines of DOS":              strings.ReplaceAll(yamlPod+"---\n"+yamlService, "\n", "\r\n"),
		"on the marker's line":      "--- " + podWeb + "\n---\t" + serviceWeb,
		"list":                      `{"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": [` + podWeb + "," + serviceWeb + "]}",
		"lists of one kind": `{"apiVersion": "v1", "kind": "PodList", "items": [` + strings.Replace(podWeb, `"apiVersion": "v1", "kind": "Pod", `, "", 1) + `]}
			{"apiVersion": "v1", "kind": "ServiceList", "items": [` + serviceWeb + "]}",
		"list in a list": `{"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "v1", "kind": "List", "items": [` + podWeb + "]}," + serviceWeb + "]}",
	} {
		t.Run(name, func(t *testing.T) {
			m := readManifests(t, text)
			require.Len(t, m.Pods, 1)
			require.Len(t, m.Services, 1)
			require.Equal(t, "web", m.Pods[0].Name)
			require.Empty(t, m.Skipped)
		})
	}
	require.Empty(t, readManifests(t, `{"apiVersion": "v1", "kind": "List", "items": []}`).Pods)
}

// Defaults of a manifest are derived from its content, and always the same.
func TestReadCompletes(t *testing.T) {
	m := readManifests(t, podWeb, serviceWeb, `{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}`,
		`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "other", "uid": "8F2A6D5E-0000-4000-8000-000000000001"}}`)
	require.Equal(t, "default", m.Pods[0].Namespace)
	require.Equal(t, types.UID("a1c7a967-7b1a-5e6b-8a86-48ec0c6f44e7"), m.Pods[0].UID)
	require.NotEqual(t, m.Pods[0].UID, m.Services[0].UID)
	require.Empty(t, m.Nodes[0].Namespace)
	require.Equal(t, types.UID("8F2A6D5E-0000-4000-8000-000000000001"), m.Pods[1].UID)
}

func TestReadSkips(t *testing.T) {
	m := readManifests(t, `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
nonsense: of no concern
---
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: c}}
- {apiVersion: v1, kind: Endpoints, metadata: {name: e}}
---
{apiVersion: discovery.k8s.io/v1beta1, kind: EndpointSlice, metadata: {generateName: s-}}
---
{apiVersion: batch/v1, kind: JobList, items: []}
---
{apiVersion: example.com/v1, kind: AllowList, metadata: {name: a}, spec: {}}
`)
	require.Equal(t, []manifest.Skipped{
		{"Deployment", "shop/web", "a.yaml: document 1", "its controller creates the pods; use the pods themselves, as kubectl get pods -o yaml prints them"},
		{"ConfigMap", "c", "a.yaml: document 2: item 1", "a bridge does not watch this kind"},
		{"Endpoints", "e", "a.yaml: document 2: item 2", "the endpoints of a service are read from its EndpointSlices"},
		{"EndpointSlice", "without a name", "a.yaml: document 3", "version discovery.k8s.io/v1 is supported, not discovery.k8s.io/v1beta1"},
		{"JobList", "without a name", "a.yaml: document 4", "its controller creates the pods; use the pods themselves, as kubectl get pods -o yaml prints them"},
		{"AllowList", "a", "a.yaml: document 5", "a bridge does not watch this kind"},
	}, m.Skipped)
}

// TestReadSkipsFields: objects of newer and older API servers are read without their unknown fields.
func TestReadSkipsFields(t *testing.T) {
	m := readManifests(t, `---
{apiVersion: v1, kind: Pod, metadata: {name: a, resourceVersion: "7"}, status: {future: 1, containerStatuses: [{name: a}, {name: b, future: 1}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: b, resourceVersion: "8"}, spec: {nodeName: n1}, status: {future: 2}}
---
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: p}, status: {}}
---
{apiVersion: v1, kind: FutureKind, metadata: {name: f, resourceVersion: "9"}}
`)
	const unknown = "this version of coe-bridge does not know it"
	require.ElementsMatch(t, []manifest.Skipped{
		{"Pod field", "status.future", "a.yaml: document 1", unknown},
		{"Pod field", "status.containerStatuses[].future", "a.yaml: document 1", unknown},
		{"NetworkPolicy field", "status", "a.yaml: document 3", unknown},
		{"FutureKind", "f", "a.yaml: document 4", "a bridge does not watch this kind"},
	}, m.Skipped)
	require.Equal(t, "n1", m.Pods[1].Spec.NodeName)
	require.Len(t, m.Policies, 1)
}

func TestReadRefuses(t *testing.T) {
	object := func(kind, rest string) string {
		version := "v1"
		if kind == "EndpointSlice" {
			version = "discovery.k8s.io/v1"
		}
		return `{"apiVersion": "` + version + `", "kind": "` + kind + `", "metadata": {"name": "web"}, ` + rest + `}`
	}
	for name, c := range map[string]struct{ text, want string }{
		"no YAML":           {"a: [", "a.yaml: document 1: yaml: line 1: did not find expected node content"},
		"JSON that ends":    {podWeb + `{"kind":`, "a.yaml: document 2: unexpected EOF"},
		"no object":         {"- a", "a.yaml: document 1: want a Kubernetes object: json: cannot unmarshal array"},
		"no kind":           {"---\n---\n" + podWeb + "\n---\na: b", "a.yaml: document 2: want a Kubernetes object with apiVersion and kind"},
		"unknown field":     {object("Pod", `"spec": {"nodeNam": "n1"}`), `a.yaml: document 1: Pod web: unknown field "spec.nodeNam"`},
		"unknown in a list": {`{"apiVersion": "v1", "kind": "List", "itms": []}`, `a.yaml: document 1: List: unknown field "itms"`},
		"item of a list": {
			`{"apiVersion": "v1", "kind": "PodList", "items": [{"metadata": {"name": "a"}}, {"metadata": {"name": "b", "namespace": "c"}, "spec": {"x": 1}}]}`,
			`a.yaml: document 1: item 2: Pod c/b: unknown field "spec.x"`,
		},
		"port of a sidecar": {object("Pod", `"spec": {"initContainers": [{"name": "c", "ports": [{"containerPort": 65536}]}]}`), "Pod web: spec.initContainers[0].ports[0].containerPort: Invalid value: 65536"},
		"address of a host": {object("Pod", `"status": {"hostIPs": [{"ip": "192.168.33"}]}`), `Pod web: status.hostIPs[0].ip: Invalid value: "192.168.33"`},
		"policy":            {strings.Replace(object("NetworkPolicy", `"spec": {"policyTypes": ["ingress"]}`), `"v1"`, `"networking.k8s.io/v1"`, 1), `NetworkPolicy web: spec.policyTypes[0]: Unsupported value: "ingress"`},
		"twice in JSON":     {object("Pod", `"spec": {"nodeName": "n1", "nodeName": "n2"}`), `Pod web: duplicate field "spec.nodeName"`},
		"twice in YAML":     {"apiVersion: v1\nkind: Pod\nkind: Pod\n", `document 1: yaml: unmarshal errors:` + "\n" + `  line 3: key "kind" already set in map`},
		"type":              {object("Pod", `"spec": {"nodeName": 7}`), "Pod web: spec.nodeName: want a text, not a number: put it in quotes"},
		"no name":           {`{"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "web-"}}`, "Pod without a name: metadata.name: Required value"},
		"name":              {`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a:b"}}`, `Pod a:b: metadata.name: Invalid value: "a:b"`},
		"namespace":         {`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "B"}}`, `Pod B/a: metadata.namespace: Invalid value: "B"`},
		"same again":        {podWeb + podWeb, "a.yaml: document 2: Pod web: a.yaml: document 1 has the same object: remove one of them"},
		"pod's address":     {object("Pod", `"status": {"podIPs": [{"ip": "10.0.0.300"}]}`), `Pod web: status.podIPs[0].ip: Invalid value: "10.0.0.300": want an IPv4 or IPv6 address`},
		"node's address": {
			object("Node", `"status": {"addresses": [{"type": "Hostname", "address": "x"}, {"type": "InternalIP", "address": "x"}]}`),
			`Node web: status.addresses[1].address: Invalid value: "x"`,
		},
		"podCIDR":          {object("Node", `"spec": {"podCIDRs": ["10.0.0.0"]}`), `spec.podCIDRs[0]: Invalid value: "10.0.0.0": want a prefix like 10.11.2.0/24`},
		"container port":   {object("Pod", `"spec": {"containers": [{"ports": [{"containerPort": 0}]}]}`), "spec.containers[0].ports[0].containerPort: Invalid value: 0: want a port number, 1..65535"},
		"port":             {object("Service", `"spec": {"ports": [{"port": 80}, {"port": 70000}]}`), "spec.ports[1].port: Invalid value: 70000"},
		"target port":      {object("Service", `"spec": {"ports": [{"port": 80, "targetPort": 70000}]}`), "spec.ports[0].targetPort: Invalid value: 70000"},
		"protocol":         {object("Service", `"spec": {"ports": [{"port": 80, "protocol": "tcp"}]}`), `spec.ports[0].protocol: Invalid value: "tcp": want TCP, UDP or SCTP`},
		"cluster address":  {object("Service", `"spec": {"clusterIP": "10.96"}`), `spec.clusterIP: Invalid value: "10.96"`},
		"external address": {object("Service", `"spec": {"clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1", "y"], "externalIPs": ["x"]}`), `[spec.clusterIPs[1]: Invalid value: "y": want an IPv4 or IPv6 address, spec.externalIPs[0]: Invalid value: "x"`},
		"endpoint":         {object("EndpointSlice", `"addressType": "IPv4", "endpoints": [{"addresses": ["x"]}], "ports": [{"port": -1, "protocol": "x"}]`), `[ports[0].port: Invalid value: -1: want a port number, 1..65535, ports[0].protocol: Invalid value: "x": want TCP, UDP or SCTP, endpoints[0].addresses[0]: Invalid value: "x"`},
		"no text":          {"", "a.yaml: it has no objects"},
		"only a comment":   {"# nothing\n", "a.yaml: it has no objects"},
		"empty documents":  {"---\n---\n", "a.yaml: it has no objects"},
		"a word of YAML":   {"---\n{apiVersion: v1, kind: Pod, metadata: {name: web, labels: {app: n, n: a}}}", "Pod web: metadata.labels: want a text, not a bool: put it in quotes"},
		"no text at all":   {object("Pod", `"spec": {"nodeName": {}}`), "Pod web: spec.nodeName: want string, not object"},
		"name of a number": {"---\n{apiVersion: v1, kind: Pod, metadata: {name: 7}}", "a.yaml: document 1: want a Kubernetes object: metadata.name: want a text, not a number: put it in quotes"},
		"version of a policy": {
			object("NetworkPolicy", `"spec": {}`), `a.yaml: document 1: NetworkPolicy web: apiVersion: Unsupported value: "v1": supported values: "networking.k8s.io/v1"`,
		},
		"misspelt kind": {
			`{"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolcy", "metadata": {"name": "p"}}`,
			`a.yaml: document 1: NetworkPolcy p: kind: Invalid value: "NetworkPolcy": networking.k8s.io/v1 has no such kind`,
		},
		"unknown field of a policy": {
			`{"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "p", "resourceVersion": "7"}, "spec": {"ingres": []}}`,
			`NetworkPolicy p: unknown field "spec.ingres"`,
		},
		"duplicate from an API server": {
			`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "resourceVersion": "7"}, "spec": {"x": 1, "nodeName": "a", "nodeName": "b"}}`,
			`Pod p: duplicate field "spec.nodeName"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var m manifest.Set
			require.ErrorContains(t, m.Read("a.yaml", strings.NewReader(c.text)), c.want)
		})
	}
}

// TestPut: a Set puts the same entities into a Store as a Watcher of such a cluster.
func TestPut(t *testing.T) {
	m := readManifests(t, podWeb, serviceWeb, `
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {addresses: [{type: InternalIP, address: 192.0.2.1}]}
---
{apiVersion: v1, kind: Namespace, metadata: {name: shop}}
---
{apiVersion: v1, kind: Pod, metadata: {name: elsewhere, namespace: shop}, spec: {nodeName: n2}, status: {hostIP: 192.0.2.2}}
---
{apiVersion: v1, kind: Pod, metadata: {name: nowhere, namespace: shop}, spec: {nodeName: n3}}
---
{apiVersion: v1, kind: Service, metadata: {name: alias}, spec: {type: ExternalName, externalName: example.org}}
---
{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: s, labels: {kubernetes.io/service-name: web}}, addressType: IPv4, endpoints: [{addresses: [10.0.0.9]}]}
---
{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: names}, addressType: FQDN, endpoints: [{addresses: [example.org]}]}
`)
	store := state.NewStore(nil, coe.Kubernetes)
	store.Update(m.Put)
	hosts := map[string]string{}
	for _, ns := range store.Namespaces() {
		for _, p := range store.View(ns).Pods {
			hosts[p.Name] = p.HostIP.String()
		}
	}
	require.Equal(t, map[string]string{"web": "192.0.2.1", "elsewhere": "192.0.2.2", "nowhere": "invalid IP"}, hosts)
	view := store.View("default")
	require.Len(t, view.Services, 1, "an ExternalName has no address")
	require.Len(t, view.Endpoints, 1)
	require.Len(t, store.Nodes(), 1)
}

// TestSelectedEndpoints: a service has the pods that it selects as endpoints, with their own ports,
// unless an EndpointSlice exists.
func TestSelectedEndpoints(t *testing.T) {
	const more = `---
{apiVersion: v1, kind: Node, metadata: {name: n1}, status: {addresses: [{type: InternalIP, address: 192.0.2.1}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: other, labels: {app: web}}, spec: {containers: [{name: c}],
  initContainers: [{name: once, ports: [{name: http, containerPort: 1}]}, {name: sidecar, restartPolicy: Always, ports: [{name: http, containerPort: 9090}]}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: host, labels: {app: web}}, spec: {hostNetwork: true, nodeName: n1, containers: [{name: c, ports: [{name: http, containerPort: 80, protocol: UDP}]}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: done, labels: {app: web}}, status: {phase: Succeeded}}
---
{apiVersion: v1, kind: Pod, metadata: {name: unmapped, labels: {app: web}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: far, namespace: shop, labels: {app: web}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: db, labels: {app: db}}}
---
{apiVersion: v1, kind: Service, metadata: {name: plain}, spec: {selector: {app: db}, ports: [{port: 5432}, {name: admin, port: 80, targetPort: 8080, protocol: UDP}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: sliced}, spec: {selector: {app: db}}}
---
{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: s, labels: {kubernetes.io/service-name: sliced}}, addressType: IPv4, endpoints: []}
---
{apiVersion: v1, kind: Service, metadata: {name: unselective}, spec: {clusterIP: 10.96.0.3}}
`
	m := readManifests(t, podWeb, serviceWeb, more)
	leases := map[string][]netip.Addr{}
	for i, p := range m.Pods {
		if p.Name != "unmapped" {
			leases[string(p.UID)] = []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})}
		}
	}
	endpoints := m.SelectedEndpoints(func(uid string) []netip.Addr { return leases[uid] })
	uids := map[string]bool{}
	for _, e := range endpoints {
		require.Equal(t, metav1.NamespaceDefault, e.Namespace)
		require.True(t, e.PortsByName)
		uids[e.UID] = true
		e.UID = ""
	}
	require.Len(t, uids, 4)
	one := func(service, address string, ports ...coe.EndpointPort) *coe.Endpoints {
		return &coe.Endpoints{Name: service, Namespace: "default", Addresses: []netip.Addr{netip.MustParseAddr(address)}, Ports: ports, PortsByName: true}
	}
	slices.SortFunc(endpoints, func(a, b *coe.Endpoints) int {
		return strings.Compare(a.Name+a.Addresses[0].String(), b.Name+b.Addresses[0].String())
	})
	require.Equal(t, []*coe.Endpoints{
		one("plain", "10.0.0.6", coe.EndpointPort{Protocol: "tcp", Port: 5432}, coe.EndpointPort{Name: "admin", Protocol: "udp", Port: 8080}),
		one("web", "10.0.0.0", coe.EndpointPort{Protocol: "tcp", Port: 8080}),
		one("web", "10.0.0.1", coe.EndpointPort{Protocol: "tcp", Port: 9090}),
		one("web", "192.0.2.1"),
	}, endpoints)
}

// FuzzManifests: any input is accepted or rejected, and accepted objects can be put into a Store.
func FuzzManifests(f *testing.F) {
	f.Add(podWeb + serviceWeb)
	f.Add("---\n" + podWeb + "\n--- # x\n" + serviceWeb + "\n...\n")
	f.Add(`--- {apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: s, labels: {kubernetes.io/service-name: web}}, addressType: IPv4, endpoints: [{addresses: [10.0.0.9]}], ports: [{}]}`)
	f.Add(`{"apiVersion": "v1", "kind": "PodList", "items": [{}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		var m manifest.Set
		if err := m.Read("fuzz", strings.NewReader(text)); err != nil {
			require.ErrorContains(t, err, "fuzz: ")
			return
		}
		state.NewStore(nil, coe.Kubernetes).Update(m.Put)
		m.SelectedEndpoints(func(string) []netip.Addr { return []netip.Addr{netip.IPv6Loopback()} })
	})
}

// TestWorld: labels, ports and addresses of the World of network policies, with what an API server
// sets, and what pods report of their nodes.
func TestWorld(t *testing.T) {
	w, err := readManifests(t, `
---
{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {team: a}}}
---
{apiVersion: v1, kind: Node, metadata: {name: n1}, status: {addresses: [{type: InternalIP, address: 192.0.2.1}, {type: InternalIP, address: "fd00::1"}, {type: Hostname, address: n1}]}}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop, labels: {app: web}}
spec:
  nodeName: n1
  initContainers:
  - {name: setup, image: i, ports: [{name: http, containerPort: 1}]}
  - {name: sidecar, image: i, restartPolicy: Always, ports: [{name: http, containerPort: 8081, protocol: TCP}]}
  containers: [{name: c, image: i, ports: [{name: http, containerPort: 8080}, {name: dns, containerPort: 53, protocol: UDP}]}]
status: {podIP: 10.1.0.1, podIPs: [{ip: 10.1.0.1}, {ip: "::ffff:10.1.0.1"}, {ip: "fd01::1"}], hostIP: 192.0.2.1, hostIPs: [{ip: 192.0.2.1}, {ip: 203.0.113.1}]}
---
{apiVersion: v1, kind: Pod, metadata: {name: done}, spec: {nodeName: n2, hostNetwork: true}, status: {phase: Failed, hostIP: 192.0.2.2}}
`).World()
	require.NoError(t, err)
	addresses := func(texts ...string) (all []netip.Addr) {
		for _, text := range texts {
			all = append(all, netip.MustParseAddr(text))
		}
		return all
	}
	const name = "kubernetes.io/metadata.name"
	require.ElementsMatch(t, []policy.Namespace{
		{Name: "shop", Labels: coe.NewLabels(map[string]string{"team": "a", name: "shop"})},
		{Name: "default", Labels: coe.NewLabels(map[string]string{name: "default"})},
	}, w.Namespaces)
	require.ElementsMatch(t, []policy.Node{
		{Name: "n1", Addresses: addresses("192.0.2.1", "fd00::1", "203.0.113.1")}, {Name: "n2", Addresses: addresses("192.0.2.2")},
	}, w.Nodes)
	require.Equal(t, []policy.Pod{
		{
			Namespace: "shop", Name: "web", Node: "n1", Labels: coe.NewLabels(map[string]string{"app": "web"}), Addresses: addresses("10.1.0.1", "fd01::1"),
			Ports: []coe.ContainerPort{{Name: "http", Protocol: "tcp", Port: 8080}, {Name: "dns", Protocol: "udp", Port: 53}, {Name: "http", Protocol: "tcp", Port: 8081}},
		},
		{Namespace: "default", Name: "done", Node: "n2", HostNetwork: true, Finished: true},
	}, w.Pods)
	require.Empty(t, w.Policies)
}
