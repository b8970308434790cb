// Package arch holds the import rules of docs/architecture.md as a test.
package arch

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/coe-bridge/coe-bridge/"

// rule says what a package may import. A package not named here may be
// imported by nobody's rule, so a new one needs a line.
type rule struct {
	own     []string // of this module
	foreign []string // path prefixes outside the standard library
	why     string
}

var rules = map[string]rule{
	"mapping/netvirt":             {nil, nil, "shared vocabulary; a leaf"},
	"mapping/netvirt/netvirtjson": {[]string{"mapping/netvirt"}, nil, "writes the vocabulary, nothing else"},
	"dhcppool":                    {nil, []string{"go4.org/netipx"}, "a leaf"},
	"coe":                         {[]string{"dhcppool"}, nil, "entities know no protocol"},
	"coe/northbound":              {[]string{"coe", "dhcppool"}, nil, "reads what the datastore keeps; knows no HTTP"},
	"coe/ipam":                    {[]string{"coe", "dhcppool"}, []string{"go4.org/netipx"}, "chooses; where it is remembered is an interface"},
	"mapping/trace":               {[]string{"coe", "mapping/netvirt"}, nil, "pure; is given what the stages know"},
	"coe/kube": {
		[]string{"coe"},
		[]string{"k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go", "k8s.io/klog/v2", "github.com/go-logr/logr", "github.com/prometheus/client_golang", "golang.org/x/net/http2"},
		"reads Kubernetes; knows neither the model nor the datastore",
	},
	"coe/kube/report": {
		[]string{"coe", "coe/kube", "mapping/netvirt"},
		[]string{"k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go", "k8s.io/klog/v2", "github.com/go-logr/logr", "github.com/prometheus/client_golang", "golang.org/x/time/rate"},
		"tells the API server what the Store says; knows neither who chose nor the backend",
	},
	"coe/kube/tokenreview": {
		[]string{"restconf/access"}, []string{"k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go"},
		"asks the API server whose a token is; who may do what is its caller's",
	},
	"coe/kube/manifest": {
		[]string{"coe", "coe/kube"},
		[]string{"k8s.io/api", "k8s.io/apimachinery", "sigs.k8s.io/json", "sigs.k8s.io/yaml", "github.com/google/uuid"},
		"reads what kubectl reads; asks no API server",
	},
	"mapping": {[]string{"coe", "mapping/netvirt"}, nil, "pure"},
	"mapping/reconcile": {
		[]string{"coe", "mapping", "mapping/netvirt"},
		[]string{"k8s.io/client-go/util/workqueue", "github.com/prometheus/client_golang"},
		"the only place that retries",
	},
	"mapping/backend/memory": {[]string{"mapping/netvirt"}, nil, "backends see neither Kubernetes nor coe"},
	"mapping/backend/ovn":    {[]string{"mapping/netvirt", "mapping/backend/ovn/nb", "mapping/backend/reads"}, []string{"github.com/ovn-kubernetes/libovsdb", "github.com/go-logr/logr", "github.com/google/uuid", "github.com/cenkalti/backoff", "github.com/go-json-experiment/json"}, "backends see neither Kubernetes nor coe"},
	"mapping/backend/ovn/nb": {nil, []string{"github.com/ovn-kubernetes/libovsdb"}, "generated"},
	"mapping/backend/odl": {
		[]string{"mapping/netvirt", "mapping/netvirt/netvirtjson", "mapping/backend/reads"},
		[]string{"github.com/go-resty/resty/v2", "github.com/go-json-experiment/json"},
		"backends see neither Kubernetes nor coe; the ids of subnets are those that netvirtjson shows",
	},
	"mapping/backend/reads":       {nil, nil, "which sessions a Read used; a leaf"},
	"mapping/backend/odl/odlfake": {[]string{"yang"}, nil, "a controller for tests: judges data by the modules, knows nothing of its writer"},
	"mapping/backend/backendtest": {[]string{"mapping/netvirt", "mapping/reconcile"}, []string{"github.com/stretchr/testify"}, "one suite, over all backends"},
	"cni/links":                   {nil, []string{"github.com/vishvananda/netlink", "github.com/vishvananda/netns", "golang.org/x/sys/unix"}, "one of the seams; knows neither the switch nor who chose"},
	"cni/ovs":                     {[]string{"cni/ovs/vswitch"}, []string{"github.com/ovn-kubernetes/libovsdb"}, "one of the seams; knows neither links nor pods' namespaces"},
	"cni/ovs/vswitch":             {nil, []string{"github.com/ovn-kubernetes/libovsdb"}, "generated"},
	"cni/durable":                 {nil, nil, "files of the node's agent; knows nothing of their contents"},
	"cni/uplink":                  {[]string{"cni/durable"}, nil, "one of the seams; knows the bridge by its YANG modules alone"},
	"cni/node": {
		[]string{"cni/links", "cni/ovs", "cni/uplink"},
		[]string{
			"github.com/google/nftables", "github.com/prometheus/client_golang", "github.com/vishvananda/netlink", "github.com/vishvananda/netns",
			"golang.org/x/sys/unix",
		},
		"the node's own place; knows no pods",
	},
	"cni/call":    {nil, []string{"github.com/containernetworking/cni/pkg/types", "golang.org/x/sys/unix"}, "between plugin and agent"},
	"cni/install": {[]string{"cni/call", "cni/durable"}, nil, "files for container runtimes; knows no Kubernetes"},
	"cni/plugin":  {[]string{"cni/call"}, []string{"github.com/containernetworking/cni/pkg"}, "thin: starts for each call, and decides nothing"},
	"cni/agent": {
		[]string{"cni/call", "cni/durable", "cni/links", "cni/ovs", "cni/uplink"},
		[]string{
			"github.com/containernetworking/cni/pkg", "github.com/vishvananda/netns", "github.com/google/uuid",
			"github.com/prometheus/client_golang", "golang.org/x/sys/unix",
		},
		"a process of its own on each node: shares no package with the bridge",
	},
	"cni/doctor": {
		[]string{"cni/agent", "cni/call", "cni/links", "cni/ovs", "cni/uplink"},
		[]string{"github.com/vishvananda/netlink", "github.com/vishvananda/netns", "golang.org/x/sys/unix"},
		"looks at what the agent needs, by the agent's own seams",
	},
	"yang": {nil, []string{"github.com/openconfig/goyang", "github.com/go-json-experiment/json"}, "schema and validation; knows no HTTP"},
	"restconf/datastore": {
		[]string{"yang"},
		[]string{"go.etcd.io/etcd", "go.etcd.io/raft", "go.uber.org/zap", "google.golang.org/grpc", "golang.org/x/sync/semaphore", "golang.org/x/sys/unix"},
		"the only importer of etcd",
	},
	"restconf/stream": {nil, nil, "between who has streams and who serves them; a leaf"},
	"files":           {nil, []string{"github.com/prometheus/client_golang"}, "a leaf: knows no one's files"},
	"restconf/access": {
		[]string{"files"},
		[]string{"golang.org/x/crypto/bcrypt", "golang.org/x/crypto/argon2", "github.com/prometheus/client_golang"},
		"tells who asks; knows neither trees nor the datastore",
	},
	"restconf/openapi": {[]string{"yang"}, nil, "writes documents about the schema; knows neither data nor HTTP"},
	"restconf/document": {
		[]string{"yang"},
		[]string{"github.com/go-json-experiment/json/jsontext", "go.yaml.in/yaml/v3"},
		"reads what people write down; knows no HTTP, and not what it means",
	},
	"restconf/xpath": {[]string{"yang"}, nil, "judges data; knows neither streams nor HTTP"},
	"coe/agentstream": {
		[]string{"coe", "mapping/netvirt", "restconf/stream"}, nil,
		"turns what was chosen into what agents are told; knows neither the datastore nor HTTP",
	},
	"restconf": {
		[]string{"coe", "dhcppool", "yang", "restconf/access", "restconf/datastore", "restconf/openapi", "restconf/stream", "restconf/xpath"},
		[]string{"github.com/gorilla/mux", "github.com/coder/websocket", "github.com/go-json-experiment/json/jsontext"},
		"writes the datastore; reads status through its own small interface",
	},
}

// wiring may import everything.
var wiring = []string{"cmd/", "test/"}

type pkg struct {
	ImportPath string
	Imports    []string
	Standard   bool
}

func TestImports(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range list(t, module+"...") {
		name := strings.TrimPrefix(p.ImportPath, module)
		if isWiring(name) {
			continue
		}
		seen[name] = true
		r, found := rules[name]
		if !found {
			t.Errorf("%s has no rule: say in test/arch what it may import, and why", name)
			continue
		}
		for _, i := range p.Imports {
			if !r.allows(i) {
				t.Errorf("%s imports %s, which its rule does not allow (%s)", name, i, r.why)
			}
		}
	}
	for name := range rules {
		if !seen[name] {
			t.Errorf("%s has a rule and is gone: take the rule out", name)
		}
	}
}

func isWiring(name string) bool {
	for _, w := range wiring {
		if strings.HasPrefix(name, w) {
			return true
		}
	}
	return false
}

func (r rule) allows(path string) bool {
	if own, ok := strings.CutPrefix(path, module); ok {
		for _, o := range r.own {
			if own == o {
				return true
			}
		}
		return false
	}
	if first, _, _ := strings.Cut(path, "/"); !strings.Contains(first, ".") {
		return true // the standard library
	}
	for _, f := range r.foreign {
		if path == f || strings.HasPrefix(path, f+"/") {
			return true
		}
	}
	return false
}

func list(t *testing.T, pattern string) []pkg {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports,Standard", pattern).Output()
	require.NoError(t, err)
	var all []pkg
	for d := json.NewDecoder(strings.NewReader(string(out))); d.More(); {
		var p pkg
		require.NoError(t, d.Decode(&p))
		all = append(all, p)
	}
	return all
}
