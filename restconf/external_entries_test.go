package restconf

import (
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	said "github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/northbound"
	"github.com/coe-bridge/coe-bridge/coe/state"
	"github.com/coe-bridge/coe-bridge/restconf/tree"
	"github.com/coe-bridge/coe-bridge/restconf/wire"
	"github.com/coe-bridge/coe-bridge/yang"
)

const externalSays = "it comes from Kubernetes (pod shop/web): change it there with kubectl"

// externalPod is the pod of uid as the tree shows it, and externalPodXML the same in
// XML.
func externalPod(uid string) string {
	return `{"uid":"` + uid + `","name":"web","host-ip-address":"192.168.33.12","network-NS":"shop","interface":[{"uid":"` + uid + `","ip-address":"10.1.2.3"}]}`
}

func externalPodXML(uid string) string {
	return `<pods` + podSpace + `><uid>` + uid + `</uid><name>web</name><host-ip-address>192.168.33.12</host-ip-address>` +
		`<network-NS>shop</network-NS><interface><uid>` + uid + `</uid><ip-address>10.1.2.3</ip-address></interface></pods>`
}

// world is a server beside which Kubernetes speaks.
type world struct {
	*bed
	said *state.Store
}

func newWorld(t testing.TB) *world {
	t.Helper()
	store := state.NewStore(nil, said.RESTCONF, said.Kubernetes)
	return &world{said: store, bed: newBed(t, func(c *Config) {
		c.External = map[string]tree.External{
			northbound.Pods:          northbound.KubernetesPods(store),
			northbound.Services:      northbound.KubernetesServices(store),
			northbound.EndpointsList: northbound.KubernetesEndpoints(store),
			northbound.Nodes:         northbound.KubernetesNodes(store),
		}
	})}
}

// speak lets Kubernetes speak of pods.
func (w *world) speak(uids ...string) {
	w.said.Update(func(tx *state.Tx) {
		for _, uid := range uids {
			tx.PutPod(said.Kubernetes, &said.Pod{
				UID: uid, Name: "web", Namespace: "shop", NodeName: "n1", HostIP: netip.MustParseAddr("192.168.33.12"),
				Interfaces: []said.PodInterface{{UID: uid, Addresses: []netip.Addr{netip.MustParseAddr("10.1.2.3"), netip.MustParseAddr("fd00::3")}}},
			})
		}
	})
}

func (w *world) forget(uid string) {
	w.said.Update(func(tx *state.Tx) { tx.DeletePod(said.Kubernetes, uid) })
}

// shows requires that a GET answers want: JSON, or XML where that begins with "<".
func (w *world) shows(path, want string) {
	w.t.Helper()
	if strings.HasPrefix(want, "<") {
		got := w.do("GET", path, "", header("Accept", "application/xml"))
		require.Equal(w.t, 200, got.status, "%s: %s", path, got.body)
		require.Equal(w.t, want, got.body, path)
		return
	}
	got := w.do("GET", path, "")
	require.Equal(w.t, 200, got.status, "%s: %s", path, got.body)
	require.JSONEq(w.t, want, got.body, path)
}

// What Kubernetes says is seen among what clients wrote, in the order of the keys.
func TestExternalEntriesAreShown(t *testing.T) {
	w := newWorld(t)
	require.Equal(t, 404, w.do("GET", coe, "").status)
	w.speak(uid2)
	w.shows(coe, `{"coe":{"pods":[`+externalPod(uid2)+`]}}`)
	w.shows(coe, `<coe`+podSpace+`>`+strings.Replace(externalPodXML(uid2), podSpace, "", 1)+`</coe>`)

	own := func(uid string) string { return `{"uid":"` + uid + `","name":"own"}` }
	require.Equal(t, 204, w.do("POST", coe, `{"pods":[`+own(uid1)+`,`+own(uid3)+`]}`).status)
	all := `[` + own(uid1) + `,` + externalPod(uid2) + `,` + own(uid3) + `]`
	ownXML := func(uid string) string { return `<pods><uid>` + uid + `</uid><name>own</name></pods>` }
	allXML := `<coe` + podSpace + `>` + ownXML(uid1) + strings.Replace(externalPodXML(uid2), podSpace, "", 1) + ownXML(uid3) + `</coe>`
	const operational = "/restconf/operational/pod:coe"
	for _, c := range []struct{ path, want string }{
		{coe, `{"coe":{"pods":` + all + `}}`},
		{coe, allXML},
		{coe + "?prettyPrint=true", `{"coe":{"pods":` + all + `}}`},
		{coe + "?depth=2", `{"coe":{"pods":[{"uid":"` + uid1 + `"},{"uid":"` + uid2 + `"},{"uid":"` + uid3 + `"}]}}`},
		{operational, `{"coe":{"pods":` + all + `}}`},
		{operational, allXML},
		{coeRFC, `{"pod:coe":{"pods":` + all + `}}`},
		{coeRFC, allXML},
		{coeRFC + "?content=config", `{"pod:coe":{"pods":` + all + `}}`},
		{coeRFC + "?fields=pods/name", `{"pod:coe":{"pods":[{"name":"own"},{"name":"web"},{"name":"own"}]}}`},
		{coeRFC + "?fields=pods/interface&depth=1", `{"pod:coe":{"pods":[{},{"interface":[{}]},{}]}}`},
		{coeRFC + "/pods", `{"pod:pods":` + all + `}`},
		{"/rests/data?fields=pod:coe/pods/uid", `{"ietf-restconf:data":{"pod:coe":{"pods":[{"uid":"` + uid1 + `"},{"uid":"` + uid2 + `"},{"uid":"` + uid3 + `"}]}}}`},
		{"/restconf/config", `{"data":{"pod:coe":{"pods":` + all + `}}}`},

		{pods + uid2, `{"pods":[` + externalPod(uid2) + `]}`},
		{pods + uid2, externalPodXML(uid2)},
		{operational + "/pods/" + uid2, `{"pods":[` + externalPod(uid2) + `]}`},
		{podsRFC + uid2, `{"pod:pods":[` + externalPod(uid2) + `]}`},
		{podsRFC + strings.ToUpper(uid2) + "?content=all", externalPodXML(uid2)},
		{podsRFC + uid2 + "?fields=uid;interface/ip-address", `{"pod:pods":[{"uid":"` + uid2 + `","interface":[{"ip-address":"10.1.2.3"}]}]}`},
		{podsRFC + uid2 + "?depth=2", `{"pod:pods":[{"uid":"` + uid2 + `","name":"web","host-ip-address":"192.168.33.12","network-NS":"shop","interface":[{}]}]}`},
		{podsRFC + uid2 + "/interface=" + uid2 + "/ip-address", `{"pod:ip-address":"10.1.2.3"}`},
		{pods + uid2 + "/interface/" + uid2, `{"interface":[{"uid":"` + uid2 + `","ip-address":"10.1.2.3"}]}`},
		{pods + uid1, `{"pods":[` + own(uid1) + `]}`},
	} {
		w.shows(c.path, c.want)
	}
	require.Equal(t, 404, w.do("GET", podsRFC+uid2+"?content=nonconfig", "").status, "all that the model says of a pod is configuration")

	w.forget(uid2)
	w.shows(coe, `{"coe":{"pods":[`+own(uid1)+`,`+own(uid3)+`]}}`)
	require.Equal(t, 404, w.do("GET", pods+uid2, "").status)
}

// Services, endpoints and nodes are shown as pods are.
func TestExternalLists(t *testing.T) {
	w := newWorld(t)
	w.said.Update(func(tx *state.Tx) {
		tx.PutService(said.Kubernetes, &said.Service{
			UID: uid1, Name: "dns", Namespace: "kube-system", ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.10")}, Affinity: 10800,
			Ports: []said.ServicePort{{Name: "dns", Protocol: "udp", Port: 53, TargetPort: "dns"}, {Name: "dns-tcp", Protocol: "tcp", Port: 53}},
		})
		tx.PutEndpoints(said.Kubernetes, &said.Endpoints{
			UID: uid2, Name: "dns", Namespace: "kube-system", Addresses: []netip.Addr{netip.MustParseAddr("10.1.2.3")},
			Terminating: []netip.Addr{netip.MustParseAddr("10.1.2.4")}, Ports: []said.EndpointPort{{Name: "dns", Protocol: "udp", Port: 53}},
		})
		tx.PutNode(said.Kubernetes, &said.Node{
			UID: uid3, HostName: "n1", InternalIP: netip.MustParseAddr("192.168.33.12"),
			PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.2.0/24"), netip.MustParsePrefix("fd00::/64")},
		})
	})
	for _, c := range []struct{ top, list, uid, entry, says string }{
		{
			"service:service-information", "services", uid1,
			`{"uid":"` + uid1 + `","name":"dns","cluster-ip-address":"10.96.0.10","network-NS":"kube-system",
				"service-ports":[{"name":"dns","port":53,"target-port":"dns"},{"name":"dns-tcp","port":53}]}`,
			"service kube-system/dns",
		},
		{
			"service:endpoints-info", "endpoints", uid2,
			`{"uid":"` + uid2 + `","name":"dns","network-NS":"kube-system","endpoint-addresses":[{"ip-address":"10.1.2.3"}],
				"endpoint-ports":[{"name":"dns","port":53}]}`,
			"endpoints of service kube-system/dns",
		},
		{
			"k8s-node:k8s-nodes-info", "k8s-nodes", uid3,
			`{"uid":"` + uid3 + `","host-name":"n1","internal-ip-address":"192.168.33.12","pod-cidr":"10.1.2.0/24"}`,
			"node n1",
		},
	} {
		t.Run(c.list, func(t *testing.T) {
			module, top, _ := strings.Cut(c.top, ":")
			w.shows("/restconf/config/"+c.top, `{"`+top+`":{"`+c.list+`":[`+c.entry+`]}}`)
			w.shows("/rests/data/"+c.top+"/"+c.list+"="+c.uid, `{"`+module+`:`+c.list+`":[`+c.entry+`]}`)
			got := w.do("DELETE", "/rests/data/"+c.top+"/"+c.list+"="+c.uid, "")
			require.Equal(t, 409, got.status)
			require.Contains(t, got.body, c.says)
		})
	}
}

// A external entry can't be written, nor what is in it, whatever a client tries.
func TestExternalEntriesAreNotWritten(t *testing.T) {
	w := newWorld(t)
	require.Equal(t, 204, w.do("POST", coe, pod(uid1)).status)
	w.speak(uid2)
	before, entry := w.everything(), "/pod:coe/pods[uid='"+uid2+"']"
	other := `{"uid":"` + uid2 + `","name":"other"}`
	inside := pods + uid2 + "/interface/" + uid2
	for _, c := range []struct{ method, path, body string }{
		{"PUT", pods + uid2, `{"pods":[` + other + `]}`},
		{"PUT", pods + uid2, `{"pods":[` + externalPod(uid2) + `]}`},
		{"PUT", pods + uid2 + "/name", `{"name":"web"}`},
		{"PUT", inside, `{"interface":[{"uid":"` + uid2 + `"}]}`},
		{"POST", pods + uid2, `{"interface":[{"uid":"` + uid3 + `"}]}`},
		{"DELETE", pods + uid2, ""},
		{"DELETE", pods + uid2 + "/name", ""},
		{"DELETE", inside, ""},
		{"POST", coe, `{"pods":[` + other + `]}`},
		{"POST", coe, `{"pods":[{"uid":"` + uid3 + `"},` + other + `]}`},
		{"PUT", coe, `{"coe":{"pods":[{"uid":"` + uid1 + `"},` + other + `]}}`},

		{"PUT", podsRFC + uid2, `{"pod:pods":[` + other + `]}`},
		{"PUT", podsRFC + uid2 + "/interface=" + uid2 + "/ip-address", `{"pod:ip-address":"10.1.2.4"}`},
		{"POST", podsRFC + uid2, `{"pod:interface":[{"uid":"` + uid3 + `"}]}`},
		{"PATCH", podsRFC + uid2, `{"pod:pods":[` + other + `]}`},
		{"PATCH", podsRFC + uid2 + "/name", `{"pod:name":"other"}`},
		{"PATCH", coeRFC, `{"pod:coe":{"pods":[{"uid":"` + uid3 + `"},` + other + `]}}`},
		{"DELETE", podsRFC + uid2, ""},
		{"POST", coeRFC, `{"pod:pods":[` + other + `]}`},
		{"POST", "/restconf/data/pod:coe", `{"pod:pods":[` + externalPod(uid2) + `]}`},
		{"PUT", coeRFC, `{"pod:coe":{"pods":[` + other + `]}}`},
		{"POST", "/rests/data", `{"pod:coe":{"pods":[` + other + `]}}`},
	} {
		got := w.do(c.method, c.path, c.body)
		require.Equal(t, 409, got.status, "%s %s %s: %s", c.method, c.path, c.body, got.body)
		require.Equal(t, "in-use", got.tag(), got.body)
		require.Equal(t, entry, got.path(), got.body)
		require.Equal(t, externalSays, got.firstError()["error-message"])
		require.Equal(t, before, w.everything(), "%s %s", c.method, c.path)
	}
	for _, media := range []string{"application/yang-data+xml", "application/xml"} {
		got := xmlError(t, w.do("PUT", podsRFC+uid2, podXML(uid2), speaksXML(media)...), 409)
		path := &wire.XMLPath{Spaces: podDeclared, Text: "/pod:coe/pod:pods[pod:uid='" + uid2 + "']"}
		require.Equal(t, wire.ErrorEntry{Type: "application", Tag: "in-use", PathXML: path, Message: externalSays}, got)
		require.Equal(t, "in-use", xmlError(t, w.do("POST", coeRFC, podXML(uid2), speaksXML(media)...), 409).Tag)
	}
	require.Equal(t, 404, w.do("DELETE", pods+uid3, "").status, "nobody speaks of it")
	require.Equal(t, 409, w.do("POST", coe, pod(uid1)).status, "a client's own entry")
	require.Equal(t, "data-exists", w.do("POST", coe, pod(uid1)).tag())
}

// A client that reads the container, changes what is its own and writes it back
// gets what it means, in both encodings.
func TestExternalEntriesAreSentBack(t *testing.T) {
	w := newWorld(t)
	w.speak(uid2, uid3)
	own := `{"uid":"` + uid1 + `","name":"own"}`
	all := own + `,` + externalPod(uid2) + `,` + externalPod(uid3)
	require.Equal(t, 200, w.do("PUT", coe, `{"coe":{"pods":[`+all+`]}}`).status, "the container was there")
	w.shows(coe, `{"coe":{"pods":[`+all+`]}}`)
	for _, c := range []struct{ path, kind string }{
		{coe, "application/json"}, {coe, "application/xml"}, {coeRFC, "application/json"}, {coeRFC, "application/yang-data+xml"},
	} {
		read := w.do("GET", c.path, "", header("Accept", c.kind))
		require.Equal(t, 200, read.status)
		written := w.do("PUT", c.path, strings.ReplaceAll(read.body, "own", "mine"), header("Content-Type", c.kind))
		require.Less(t, written.status, 300, written.body)
		require.Equal(t, strings.ReplaceAll(read.body, "own", "mine"), w.do("GET", c.path, "", header("Accept", c.kind)).body)
		require.Less(t, w.do("PUT", c.path, read.body, header("Content-Type", c.kind)).status, 300)
	}
	w.forget(uid2)
	w.forget(uid3)
	w.shows(coe, `{"coe":{"pods":[`+own+`]}}`)
}

// TestStaleExternalEntries: a write with the ETag of an old copy of the container fails, even
// if only an external entry has changed.
func TestStaleExternalEntries(t *testing.T) {
	w := newWorld(t)
	w.speak(uid2)
	require.Equal(t, 201, w.do("PUT", coeRFC+"/pods="+uid1, `{"pod:pods":[{"uid":"`+uid1+`","name":"own"}]}`).status)
	read := w.do("GET", coeRFC, "")
	tag := header("If-Match", read.header.Get("ETag"))
	require.Less(t, w.do("PUT", coeRFC, read.body, tag).status, 300)
	read = w.do("GET", coeRFC, "")
	tag = header("If-Match", read.header.Get("ETag"))
	w.speak(uid3)
	w.forget(uid2)
	require.Equal(t, 412, w.do("PUT", coeRFC, read.body, tag).status)
	require.Equal(t, 412, w.do("PATCH", coeRFC, read.body, tag).status)
	require.Equal(t, 409, w.do("DELETE", coeRFC+"/pods="+uid3, "", tag).status, "it is external, whatever the condition")
}

// An edit of the container changes only the entries that clients wrote.
func TestContainerWithExternalEntries(t *testing.T) {
	theirs := `{"pod:coe":{"pods":[` + externalPod(uid2) + `]}}`
	for _, c := range []struct{ name, method, path, body, want string }{
		{"delete", "DELETE", coeRFC, "", theirs},
		{"delete, draft-02", "DELETE", coe, "", theirs},
		{"replace by nothing", "PUT", coeRFC, `{"pod:coe":{}}`, theirs},
		{"replace", "PUT", coe, `{"coe":{"pods":[{"uid":"` + uid3 + `"}]}}`, `{"pod:coe":{"pods":[` + externalPod(uid2) + `,{"uid":"` + uid3 + `"}]}}`},
		{"merge", "PATCH", coeRFC, `{"pod:coe":{"pods":[{"uid":"` + uid3 + `"}]}}`, `{"pod:coe":{"pods":[{"uid":"` + uid1 + `"},` + externalPod(uid2) + `,{"uid":"` + uid3 + `"}]}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			require.Equal(t, 204, w.do("POST", coe, `{"pods":[{"uid":"`+uid1+`"}]}`).status)
			w.speak(uid2)
			require.Less(t, w.do(c.method, c.path, c.body).status, 300)
			w.shows(coeRFC, c.want)
		})
	}
}

// A container in which all is external is there, and has nothing that a client
// could delete.
func TestContainerOfExternalEntriesAlone(t *testing.T) {
	for _, c := range []struct {
		name, method, path, body string
		status                   int
		tag                      string
	}{
		{"delete", "DELETE", coeRFC, "", 409, "in-use"},
		{"delete, draft-02", "DELETE", coe, "", 409, "in-use"},
		{"delete what is not there", "DELETE", "/rests/data/service:service-information", "", 404, "data-missing"},
		{"make", "POST", "/rests/data", `{"pod:coe":{"pods":[{"uid":"` + uid3 + `"}]}}`, 409, "data-exists"},
		{"replace", "PUT", coeRFC, `{"pod:coe":{"pods":[{"uid":"` + uid3 + `"}]}}`, 204, ""},
		{"replace, draft-02", "PUT", coe, `{"coe":{"pods":[{"uid":"` + uid3 + `"}]}}`, 200, ""},
		{"merge", "PATCH", coeRFC, `{"pod:coe":{"pods":[{"uid":"` + uid3 + `"}]}}`, 204, ""},
		{"make an entry", "POST", coe, `{"pods":[{"uid":"` + uid3 + `"}]}`, 204, ""},
		{"put an entry", "PUT", pods + uid3, `{"pods":[{"uid":"` + uid3 + `"}]}`, 201, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.speak(uid2)
			got := w.do(c.method, c.path, c.body)
			require.Equal(t, c.status, got.status, got.body)
			require.Equal(t, c.tag, got.tag())
			want := externalPod(uid2)
			if c.tag == "" {
				want += `,{"uid":"` + uid3 + `"}`
			}
			w.shows(coe, `{"coe":{"pods":[`+want+`]}}`)
			if c.tag == "" {
				require.Less(t, w.do("DELETE", coe, "").status, 300)
				w.shows(coe, `{"coe":{"pods":[`+externalPod(uid2)+`]}}`)
			}
		})
	}
}

// If a client wrote an entry before Kubernetes had it, the external entry is
// believed, until it goes. Alone it can't be changed; with its container it can.
func TestEntryThatBecomesExternal(t *testing.T) {
	w := newWorld(t)
	require.Equal(t, 204, w.do("POST", coe, pod(uid1)).status)
	w.speak(uid1)
	w.shows(pods+uid1, `{"pods":[`+externalPod(uid1)+`]}`)
	w.shows(coe, `{"coe":{"pods":[`+externalPod(uid1)+`]}}`)
	require.Equal(t, "in-use", w.do("PUT", pods+uid1, pod(uid1)).tag())
	require.Equal(t, "in-use", w.do("DELETE", pods+uid1, "").tag())
	require.Equal(t, "in-use", w.do("POST", coe, pod(uid1)).tag())
	w.forget(uid1)
	w.shows(coe, `{"coe":`+pod(uid1)+`}`)

	w.speak(uid1)
	require.Equal(t, 200, w.do("DELETE", coe, "").status)
	w.shows(coe, `{"coe":{"pods":[`+externalPod(uid1)+`]}}`)
	w.forget(uid1)
	require.Equal(t, 404, w.do("GET", coe, "").status)
}

// Every read and write sees external entries come and go, and none fails by it.
func TestExternalEntriesComeAndGo(t *testing.T) {
	w := newWorld(t)
	stop := make(chan struct{})
	var speaker sync.WaitGroup
	speaker.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				w.speak(uid1, uid2)
				w.forget(uid1)
				w.forget(uid2)
			}
		}
	})
	t.Cleanup(func() {
		close(stop)
		speaker.Wait()
	})
	for range 50 {
		require.Contains(t, []int{200, 201}, w.do("PUT", pods+uid3, pod(uid3)).status)
		require.Contains(t, []int{200, 201, 409}, w.do("PUT", pods+uid1, pod(uid1)).status)
		require.Contains(t, []int{200, 404, 409}, w.do("DELETE", pods+uid1, "").status)
		require.Contains(t, []int{200, 409}, w.do("PUT", coe, w.do("GET", coe, "").body).status)
		require.Contains(t, []int{200, 404}, w.do("GET", podsRFC+uid2, "").status)
	}
	w.shows(pods+uid3, pod(uid3))
}

func TestExternalListsAreKnown(t *testing.T) {
	schema, err := yang.Load()
	require.NoError(t, err)
	for name, message := range map[string]string{
		"pod:coe/nobody":           "no node",
		"pod:coe":                  "/pod:coe cannot have external entries",
		"k8s:k8s/network-policies": "cannot have external entries",
		"k8s:k8s/network-policies/network-policy": "cannot have external entries",
	} {
		_, err := New(Config{Config: tree.Config{Schema: schema, External: map[string]tree.External{name: nil}}, Auth: FixedUsers{}})
		require.ErrorContains(t, err, message, name)
	}
}
