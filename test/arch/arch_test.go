// Package arch holds the import rules of docs/architecture.md as a test.
package arch

import (
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/coe-bridge/coe-bridge/"

// rule says what a package may import. Every package needs a rule. The test fails if a rule
// allows an import that the package does not have.
type rule struct {
	own   []string // of this module
	other []string // path prefixes outside this module and the standard library
	why   string
}

var rules = map[string]rule{
	"mapping/netvirt":             {nil, nil, "the types of the model; a leaf"},
	"mapping/netvirt/netvirtjson": {[]string{"mapping/netvirt"}, nil, "encodes the model, nothing else"},
	"dhcppool":                    {nil, []string{"go4.org/netipx"}, "a leaf"},
	"coe/nodenet":                 {nil, nil, "computes addresses; a leaf"},
	"coe":                         {[]string{"coe/nodenet"}, nil, "entities know no protocol"},
	"coe/state":                   {[]string{"coe"}, nil, "keeps values in memory; reads no source, and chooses nothing"},
	"coe/physical":                {[]string{"coe"}, nil, "settings and what pods lack; keeps nothing"},
	"coe/vips":                    {[]string{"coe", "coe/journal", "coe/state"}, nil, "knows neither pools nor settings; its journal is an interface"},
	"coe/chassis":                 {[]string{"coe"}, nil, "pure: decides from what it is given"},
	"coe/journal":                 {[]string{"coe", "coe/state", "mapping/netvirt"}, []string{"github.com/go-json-experiment/json"}, "records of choices and the facts they are; makes no choice"},
	"coe/inuse":                   {[]string{"coe", "mapping/netvirt"}, nil, "reads a model; keeps nothing, and knows no record"},
	"coe/northbound":              {[]string{"coe", "coe/state", "dhcppool"}, nil, "reads what the datastore keeps; knows no HTTP"},
	"coe/northbound/entry":        {[]string{"coe/northbound", "yang"}, nil, "entries as YANG data; knows no HTTP"},
	"coe/ranges":                  {[]string{"coe", "coe/nodenet", "coe/physical", "dhcppool", "mapping/netvirt"}, []string{"go4.org/netipx"}, "computes; keeps nothing"},
	"coe/ipam":                    {[]string{"coe", "coe/chassis", "coe/inuse", "coe/journal", "coe/ranges", "coe/state", "coe/vips", "dhcppool", "mapping/netvirt"}, nil, "chooses; its journal is an interface"},
	"mapping/trace":               {[]string{"coe", "mapping/netvirt"}, nil, "pure; its caller reads the stages"},
	"coe/kube": {
		[]string{"coe", "coe/state"},
		[]string{"k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go", "k8s.io/klog/v2", "k8s.io/utils/net", "k8s.io/utils/ptr", "github.com/go-logr/logr", "github.com/prometheus/client_golang", "golang.org/x/net/http2"},
		"reads Kubernetes; knows neither the model nor the datastore",
	},
	"coe/kube/report": {
		[]string{"coe", "coe/kube", "coe/state", "mapping/netvirt"},
		[]string{"k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go", "k8s.io/klog/v2", "github.com/go-logr/logr", "github.com/prometheus/client_golang", "golang.org/x/time/rate"},
		"reports the contents of the Store to the API server; knows neither coe/ipam nor the backend",
	},
	"coe/kube/tokenreview": {
		[]string{"restconf/access"}, []string{"k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go"},
		"asks the API server for the owner of a token; its caller decides what the owner may do",
	},
	"coe/kube/manifest": {
		[]string{"coe", "coe/kube", "coe/state", "mapping/policy"},
		[]string{"k8s.io/api", "k8s.io/apimachinery", "sigs.k8s.io/json", "sigs.k8s.io/yaml", "github.com/google/uuid"},
		"reads the files that kubectl reads; knows no API server",
	},
	"mapping":                   {[]string{"coe", "coe/nodenet", "coe/physical", "mapping/gateway", "mapping/netvirt", "mapping/service"}, []string{"go4.org/netipx"}, "pure"},
	"mapping/gateway":           {[]string{"coe", "coe/nodenet", "mapping/netvirt"}, nil, "pure; knows neither services nor policies"},
	"mapping/service":           {[]string{"coe", "mapping/gateway", "mapping/netvirt"}, nil, "pure; knows neither how pods are mapped nor policies"},
	"mapping/policy":            {[]string{"coe"}, []string{"go4.org/netipx"}, "pure; judges what it is given, and knows neither the Store nor who enforces"},
	"mapping/policy/policytest": {nil, []string{"k8s.io/api", "k8s.io/apimachinery"}, "random policies for tests; judges nothing"},
	"mapping/reconcile": {
		[]string{"coe", "mapping/netvirt"},
		[]string{"k8s.io/client-go/util/workqueue", "github.com/prometheus/client_golang"},
		"the only place that retries",
	},
	"mapping/plan": {
		[]string{
			"coe", "coe/ipam", "coe/ranges", "coe/kube/manifest", "coe/northbound", "coe/northbound/entry", "coe/state", "dhcppool", "mapping", "mapping/backend/ovn/codec", "mapping/backend/ovn/nb",
			"mapping/backend/ovn/preview", "mapping/netvirt", "mapping/netvirt/netvirtjson", "mapping/policy", "mapping/service", "yang",
		}, nil,
		"computes with the parts of a bridge; starts nothing, connects to no backend, and knows no HTTP",
	},
	"mapping/status": {
		[]string{"coe", "coe/state", "mapping", "mapping/netvirt", "mapping/reconcile", "mapping/service", "mapping/trace"}, nil,
		"the trees of coe-status, for server and command line; knows no HTTP",
	},
	"mapping/backend/memory": {[]string{"mapping/netvirt"}, nil, "backends see neither Kubernetes nor coe"},
	"mapping/backend/ovn": {
		[]string{"mapping/netvirt", "mapping/backend/ovn/codec", "mapping/backend/ovn/identity", "mapping/backend/ovn/nb", "mapping/backend/ovn/ovsdb", "mapping/backend/ovn/servers", "mapping/backend/reads"},
		[]string{"github.com/ovn-kubernetes/libovsdb", "github.com/google/uuid"},
		"backends see neither Kubernetes nor coe",
	},
	"mapping/backend/ovn/acl": {
		[]string{"mapping/netvirt", "mapping/backend/ovn/identity", "mapping/backend/ovn/nb", "mapping/backend/ovn/ovsdb"}, nil,
		"pure: turns ACLs and remote groups into rows and back; knows neither the rows of ports nor a connection",
	},
	"mapping/backend/ovn/codec": {
		[]string{"mapping/netvirt", "mapping/backend/ovn/acl", "mapping/backend/ovn/identity", "mapping/backend/ovn/nb", "mapping/backend/ovn/ovsdb"}, nil,
		"pure: turns objects into rows and back; knows no connection",
	},
	"mapping/backend/ovn/identity": {
		[]string{"mapping/netvirt", "mapping/backend/ovn/nb", "mapping/backend/ovn/ovsdb"}, []string{"github.com/google/uuid"},
		"pure: which rows are ours, and of which group; knows neither the rows of a group nor a connection",
	},
	"mapping/backend/ovn/follow": {
		[]string{"mapping/backend/ovn/ovsdb", "mapping/backend/ovn/servers"}, []string{"github.com/go-json-experiment/json"},
		"follows ports; writes nothing, and knows neither the backend nor the model",
	},
	"mapping/backend/ovn/servers": {
		[]string{"mapping/backend/ovn/ovsdb"}, []string{"github.com/go-json-experiment/json"},
		"asks servers about themselves; knows no table of OVN",
	},
	"mapping/backend/ovn/preview": {
		[]string{"mapping/netvirt", "mapping/backend/ovn/codec", "mapping/backend/ovn/identity", "mapping/backend/ovn/nb", "mapping/backend/ovn/ovsdb"}, nil,
		"pure: lists the rows of a model; knows no connection",
	},
	"mapping/backend/ovn/nb": {nil, []string{"github.com/ovn-kubernetes/libovsdb"}, "generated"},
	"mapping/backend/ovn/ovsdb": {
		nil, []string{"github.com/ovn-kubernetes/libovsdb", "github.com/go-json-experiment/json"},
		"reads and writes rows; knows neither the database nor the meaning of the rows",
	},
	"mapping/backend/odl": {
		[]string{"mapping/netvirt", "mapping/backend/odl/codec", "mapping/backend/odl/controller", "mapping/backend/odl/operational", "mapping/backend/odl/shards", "mapping/backend/reads"},
		[]string{"github.com/go-json-experiment/json"},
		"backends know neither Kubernetes nor coe",
	},
	"mapping/backend/odl/controller": {
		[]string{"mapping/backend/odl/codec"}, []string{"github.com/go-resty/resty/v2", "github.com/go-json-experiment/json"},
		"sends requests and reads answers; knows no model",
	},
	"mapping/backend/odl/operational": {
		[]string{"mapping/netvirt", "mapping/backend/odl/codec", "mapping/backend/odl/controller"}, []string{"github.com/go-json-experiment/json"},
		"reads what OpenDaylight has made of our entries; writes none of them, and is given its connection",
	},
	"mapping/backend/odl/shards": {
		[]string{"mapping/backend/odl/controller"}, []string{"github.com/go-json-experiment/json"},
		"lets members of a cluster lead shards; knows nothing of what is in them, and is given its connection",
	},
	"mapping/backend/odl/codec": {
		[]string{"mapping/netvirt", "mapping/netvirt/netvirtjson"}, []string{"github.com/go-json-experiment/json"},
		"pure: turns objects into entries and back; knows no RESTCONF; netvirtjson gives the IDs of subnets",
	},
	"mapping/backend/reads":       {nil, nil, "which sessions a Read used; a leaf"},
	"mapping/backend/odl/odlfake": {[]string{"yang"}, nil, "a controller for tests: judges data by the modules, knows nothing of its writer"},
	"mapping/backend/odl/odltest": {[]string{"mapping/netvirt"}, nil, "models for tests, which know nothing of a backend"},
	"mapping/backend/backendtest": {[]string{"mapping/netvirt", "mapping/reconcile"}, []string{"github.com/stretchr/testify"}, "one suite, over all backends"},
	"cni/links":                   {nil, []string{"github.com/vishvananda/netlink", "github.com/vishvananda/netns", "golang.org/x/sys/unix"}, "a part of the agent; knows neither the switch nor the bridge"},
	"cni/ovs":                     {[]string{"cni/ovs/remotes", "cni/ovs/session", "cni/ovs/vif", "cni/ovs/vswitch"}, []string{"github.com/ovn-kubernetes/libovsdb"}, "a part of the agent; knows neither links nor network namespaces of pods"},
	"cni/ovs/remotes":             {nil, nil, "addresses of servers; a leaf"},
	"cni/ovs/session":             {[]string{"cni/ovs/vswitch"}, []string{"github.com/ovn-kubernetes/libovsdb"}, "a connection to the database; does not know what rows mean"},
	"cni/ovs/vif":                 {nil, nil, "the external_ids of pods' interfaces; a leaf"},
	"cni/ovs/vswitch":             {nil, []string{"github.com/ovn-kubernetes/libovsdb"}, "generated"},
	"cni/openflow":                {nil, nil, "reads flows of the switch; knows neither the agent nor the bridge"},
	"cni/odlports":                {[]string{"cni/openflow"}, nil, "ports of the switch that wait for OpenDaylight; knows neither links nor the bridge"},
	"cni/durable":                 {nil, nil, "writes files of the agent; does not know their contents"},
	"cni/nic": {
		[]string{"cni/durable", "cni/links", "cni/ovs"},
		[]string{"github.com/google/nftables", "github.com/vishvananda/netlink", "github.com/vishvananda/netns", "golang.org/x/sys/unix"},
		"moves NICs of the node; knows neither the bridge nor OVN",
	},
	"cni/uplink": {[]string{"cni/durable"}, nil, "a part of the agent; knows only the YANG modules of the bridge"},
	"cni/conntrack": {
		[]string{"cni/links"}, []string{"github.com/vishvananda/netlink", "github.com/vishvananda/netns", "golang.org/x/sys/unix"},
		"deletes connections that its callers choose; knows neither ports nor pods",
	},
	"cni/matches": {nil, []string{"github.com/google/nftables", "golang.org/x/sys/unix"}, "expressions of nftables; knows no table"},
	"cni/nodeports": {
		[]string{"cni/matches"}, []string{"github.com/google/nftables", "github.com/vishvananda/netlink", "go4.org/netipx", "golang.org/x/sys/unix"},
		"pure: turns ports into elements, chains and rules; knows no kernel",
	},
	"cni/porttables": {
		[]string{"cni/conntrack", "cni/links", "cni/nodeports"},
		[]string{"github.com/google/nftables", "github.com/mdlayher/netlink", "github.com/vishvananda/netlink", "github.com/vishvananda/netns", "golang.org/x/sys/unix"},
		"a part of the agent; knows neither the bridge nor the switch",
	},
	"cni/podservices": {
		[]string{"cni/nodeports", "cni/porttables"},
		[]string{"github.com/vishvananda/netns", "golang.org/x/sys/unix"},
		"a part of the agent; knows neither the switch nor the bridge",
	},
	"cni/noderules": {
		[]string{"cni/conntrack", "cni/links", "cni/matches", "cni/policyroute"},
		[]string{"github.com/google/nftables", "github.com/vishvananda/netlink", "github.com/vishvananda/netns", "golang.org/x/sys/unix"},
		"rules of the node; knows neither the bridge nor the switch",
	},
	"cni/nodeservices": {
		[]string{"cni/healthchecks", "cni/links", "cni/nodeports", "cni/ovs", "cni/ovs/vif", "cni/podservices", "cni/porttables", "cni/uplink"},
		[]string{"github.com/prometheus/client_golang", "github.com/vishvananda/netns"},
		"chooses the ports of services and pods on a node; does not know how the node is connected",
	},
	"cni/policyroute": {
		[]string{"cni/links"},
		[]string{"github.com/vishvananda/netlink", "github.com/vishvananda/netns", "golang.org/x/sys/unix"},
		"a part of the agent; knows neither the bridge nor the switch",
	},
	"cni/healthchecks": {
		[]string{"cni/links"},
		[]string{"github.com/vishvananda/netns"},
		"a part of the agent; knows neither the bridge nor the switch",
	},
	"cni/egress": {
		[]string{"cni/healthchecks", "cni/links"},
		[]string{"github.com/vishvananda/netns"},
		"a part of the agent; knows neither the stream of the node nor packets",
	},
	"cni/egress/nics": {
		[]string{"cni/links"}, []string{"github.com/vishvananda/netlink", "github.com/vishvananda/netns", "golang.org/x/sys/unix"},
		"addresses of the node's NICs; knows neither the bridge nor the switch",
	},
	"cni/node": {
		[]string{"cni/conntrack", "cni/egress", "cni/egress/nics", "cni/links", "cni/noderules", "cni/nodeservices", "cni/odlports", "cni/openflow", "cni/ovs", "cni/ovs/remotes", "cni/policyroute", "cni/uplink"},
		[]string{
			"github.com/prometheus/client_golang", "github.com/vishvananda/netlink", "github.com/vishvananda/netns",
			"golang.org/x/sys/unix",
		},
		"connects the node itself; knows of pods only their records",
	},
	"cni/dhcp": {
		[]string{"cni/links"},
		[]string{
			"github.com/insomniacslk/dhcp", "github.com/mdlayher/packet", "github.com/prometheus/client_golang", "github.com/vishvananda/netns",
			"golang.org/x/net/bpf", "golang.org/x/sys/unix", "golang.org/x/time/rate",
		},
		"answers on links of pods; chooses no values, and knows neither the switch nor the bridge",
	},
	"cni/call":    {nil, []string{"github.com/containernetworking/cni/pkg/types", "golang.org/x/sys/unix"}, "between plugin and agent"},
	"cni/unixctl": {nil, nil, "asks daemons; does not know what the answers mean"},
	"cni/daemons": {[]string{"cni/unixctl"}, []string{"github.com/prometheus/client_golang"}, "metrics of daemons; knows neither the agent nor the bridge"},
	"cni/install": {[]string{"cni/call", "cni/durable"}, nil, "files for container runtimes; knows no Kubernetes"},
	"cni/plugin":  {[]string{"cni/call"}, []string{"github.com/containernetworking/cni/pkg"}, "thin: starts for each call, and decides nothing"},
	"cni/agent": {
		[]string{"cni/call", "cni/daemons", "cni/dhcp", "cni/durable", "cni/links", "cni/openflow", "cni/ovs", "cni/ovs/vif", "cni/uplink"},
		[]string{
			"github.com/containernetworking/cni/pkg", "github.com/vishvananda/netns", "github.com/google/uuid",
			"github.com/prometheus/client_golang", "golang.org/x/sys/unix",
		},
		"a process of its own on each node: knows the bridge only through cni/uplink",
	},
	"cni/doctor": {
		[]string{"cni/agent", "cni/call", "cni/daemons", "cni/links", "cni/nic", "cni/ovs", "cni/ovs/remotes", "cni/unixctl", "cni/uplink"},
		[]string{"github.com/google/nftables", "github.com/vishvananda/netlink", "github.com/vishvananda/netns", "golang.org/x/sys/unix"},
		"looks at what the agent needs, by the agent's own seams",
	},
	"coe/kube/connectivity/cluster": {
		[]string{"coe/kube/connectivity"},
		[]string{"golang.org/x/sync/errgroup", "k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go", "k8s.io/streaming/pkg/httpstream"},
		"runs a test in any cluster; knows neither a bridge nor the network plugin",
	},
	"coe/kube/connectivity": {nil, nil, "pure: plans checks and judges results; knows no cluster"},
	"yang":                  {nil, []string{"github.com/openconfig/goyang", "github.com/go-json-experiment/json"}, "schema and validation; knows no HTTP"},
	"restconf/datastore": {
		[]string{"yang"},
		[]string{"go.etcd.io/etcd", "go.etcd.io/raft", "go.uber.org/zap", "google.golang.org/grpc", "golang.org/x/sync/semaphore", "golang.org/x/sys/unix"},
		"the only importer of etcd",
	},
	"restconf/stream": {
		[]string{"yang", "restconf/wire", "restconf/xpath"}, nil,
		"keeps and serves events; knows neither the datastore nor what events mean",
	},
	"restconf/salremote": {
		[]string{"yang", "restconf/changes", "restconf/discovery", "restconf/stream", "restconf/tree", "restconf/wire"}, []string{"github.com/coder/websocket"},
		"OpenDaylight's streams, made from the streams of changes; its caller decides who may follow them",
	},
	"restconf/changes": {
		[]string{"yang", "restconf/datastore", "restconf/stream", "restconf/tree", "restconf/wire"}, nil,
		"turns changes of the datastore into events; knows not how they are served",
	},
	"files": {nil, []string{"github.com/prometheus/client_golang"}, "a leaf: knows no one's files"},
	"restconf/access": {
		[]string{"files"},
		[]string{"golang.org/x/crypto/bcrypt", "golang.org/x/crypto/argon2", "github.com/prometheus/client_golang"},
		"identifies clients; knows neither trees nor the datastore",
	},
	"restconf/openapi": {[]string{"yang"}, nil, "writes documents about the schema; knows neither data nor HTTP"},
	"restconf/document": {
		[]string{"yang"},
		[]string{"github.com/go-json-experiment/json/jsontext", "go.yaml.in/yaml/v3"},
		"reads files; knows neither HTTP nor the meaning of the data",
	},
	"restconf/tree": {[]string{"yang", "restconf/datastore"}, nil, "reads and writes the tree; knows neither HTTP nor encodings"},
	"restconf/discovery": {
		[]string{"yang", "restconf/stream", "restconf/tree", "restconf/wire"}, nil,
		"documents about the server; knows neither data nor how streams are served",
	},
	"restconf/wire": {
		[]string{"yang", "restconf/datastore", "restconf/tree"}, []string{"github.com/go-json-experiment/json/jsontext"},
		"encodes and decodes messages; knows neither the server nor the client",
	},
	"restconf/xpath": {[]string{"yang"}, nil, "judges data; knows neither streams nor HTTP"},
	"coe/egress":     {[]string{"coe", "coe/state", "mapping/netvirt"}, []string{"github.com/prometheus/client_golang"}, "decides where egress addresses are; its journal, the nodes and the network are interfaces"},
	"coe/agentstream": {
		[]string{"coe", "coe/egress", "coe/nodenet", "coe/physical", "coe/state", "mapping/netvirt", "restconf/stream"},
		[]string{"github.com/go-json-experiment/json"},
		"turns leases into records for agents; knows neither where records are stored nor how streams are served",
	},
	"restconf": {
		[]string{"yang", "restconf/access", "restconf/changes", "restconf/discovery", "restconf/openapi", "restconf/salremote", "restconf/stream", "restconf/tree", "restconf/wire"},
		[]string{"github.com/gorilla/mux"},
		"serves the tree over HTTP; knows neither the store of the data nor their meaning",
	},
	"restconf/client": {[]string{"yang", "restconf/stream", "restconf/wire"}, []string{"github.com/go-resty/resty/v2"}, "makes requests; knows the server by its protocol alone"},
	"cmd/bridge": {
		[]string{
			"cmd/footprint", "coe", "coe/agentstream", "coe/egress", "coe/inuse", "coe/ipam", "coe/journal", "coe/kube", "coe/kube/report", "coe/northbound", "coe/northbound/entry", "coe/ranges", "coe/state", "coe/vips", "dhcppool",
			"mapping", "mapping/backend/memory", "mapping/backend/odl", "mapping/backend/ovn", "mapping/backend/ovn/follow", "mapping/backend/ovn/servers", "mapping/netvirt", "mapping/netvirt/netvirtjson",
			"mapping/plan", "mapping/reconcile", "mapping/service", "mapping/status", "mapping/trace", "restconf", "restconf/access", "restconf/datastore", "restconf/stream", "restconf/tree", "yang",
		},
		[]string{"github.com/prometheus/client_golang", "github.com/prometheus/client_model/go", "k8s.io/client-go/dynamic", "k8s.io/client-go/kubernetes", "k8s.io/client-go/rest", "golang.org/x/sync/errgroup"},
		"wiring of the bridge; parses no flags, and knows no file formats",
	},
	"cmd/footprint": {nil, []string{"golang.org/x/sys/unix"}, "memory of the process; a leaf"},
	"cmd/coe-cni":   {[]string{"cni/plugin"}, []string{"github.com/containernetworking/cni/pkg/skel"}, "starts for each call of a runtime"},
	"cmd/coe-bridge": {
		[]string{
			"cmd/coe-bridge/connectivity", "cmd/coe-bridge/flags", "cmd/coe-bridge/node", "cmd/coe-bridge/output", "cmd/coe-bridge/passwd",
			"cmd/coe-bridge/plan", "cmd/coe-bridge/policy", "cmd/coe-bridge/remote", "cmd/coe-bridge/serve",
		},
		[]string{"github.com/go-logr/logr", "github.com/spf13/cobra", "github.com/spf13/pflag", "k8s.io/klog"},
		"the root command; knows only its commands",
	},
	"cmd/coe-bridge/flags": {
		[]string{"cmd/bridge", "coe", "coe/nodenet", "coe/physical", "coe/ranges", "dhcppool", "files", "mapping", "mapping/backend/odl", "mapping/backend/ovn", "restconf/client"},
		[]string{"github.com/spf13/cobra", "github.com/spf13/pflag", "sigs.k8s.io/yaml"},
		"turns flags into settings; runs nothing",
	},
	"cmd/coe-bridge/output":    {[]string{"cmd/coe-bridge/flags"}, []string{"github.com/spf13/cobra", "sigs.k8s.io/yaml"}, "prints; knows not what"},
	"cmd/coe-bridge/entrykind": {[]string{"coe", "restconf/document", "yang"}, nil, "kinds of entries, for the commands that read documents"},
	"cmd/coe-bridge/remote": {
		[]string{
			"cmd/coe-bridge/flags", "cmd/coe-bridge/entrykind", "cmd/coe-bridge/output", "coe", "mapping/status", "mapping/trace", "restconf/client",
			"restconf/document", "yang",
		},
		[]string{"github.com/spf13/cobra", "go4.org/netipx"},
		"knows a running bridge by its RESTCONF alone",
	},
	"cmd/coe-bridge/plan": {
		[]string{
			"cmd/bridge", "cmd/coe-bridge/flags", "cmd/coe-bridge/entrykind", "cmd/coe-bridge/output", "cmd/coe-bridge/running", "coe",
			"coe/kube/manifest", "mapping/backend/ovn/preview", "mapping/netvirt", "mapping/plan", "mapping/policy", "restconf/document",
		},
		[]string{"github.com/spf13/cobra", "go.yaml.in/yaml/v3"},
		"shows what would change; writes nothing",
	},
	"cmd/coe-bridge/policy": {
		[]string{
			"cmd/coe-bridge/flags", "cmd/coe-bridge/output", "cmd/coe-bridge/running", "coe", "coe/kube/manifest", "mapping/plan", "mapping/policy",
		},
		[]string{"github.com/spf13/cobra"},
		"asks the evaluator, and prints",
	},
	"cmd/coe-bridge/connectivity": {
		[]string{"cmd/coe-bridge/output", "coe/kube/connectivity", "coe/kube/connectivity/cluster"}, []string{"github.com/spf13/cobra", "golang.org/x/term"},
		"turns flags into a test, and prints its report",
	},
	"cmd/coe-bridge/running": {
		[]string{"coe/kube", "coe/kube/manifest", "mapping/plan"}, []string{"github.com/spf13/cobra", "k8s.io/client-go/rest"},
		"reads a running cluster once; knows no bridge",
	},
	"cmd/coe-bridge/serve": {
		[]string{
			"cmd/bridge", "cmd/coe-bridge/flags", "cni/ovs/remotes", "coe/kube", "coe/kube/tokenreview", "dhcppool", "files", "mapping/reconcile", "restconf",
			"restconf/access", "restconf/datastore",
		},
		[]string{"github.com/spf13/cobra", "k8s.io/client-go/rest", "k8s.io/klog/v2"},
		"turns flags into the configuration of a bridge, and runs it",
	},
	"cmd/coe-bridge/node": {
		[]string{
			"cmd/coe-bridge/flags", "cmd/coe-bridge/output", "cmd/footprint", "cni/agent", "cni/call", "cni/daemons", "cni/doctor", "cni/install", "cni/links",
			"cni/nic", "cni/node", "cni/openflow", "cni/ovs", "cni/uplink", "files", "restconf/client",
		},
		[]string{
			"github.com/prometheus/client_golang", "github.com/spf13/cobra", "github.com/spf13/pflag", "github.com/vishvananda/netns",
			"k8s.io/apimachinery/pkg/api/errors", "k8s.io/apimachinery/pkg/apis/meta/v1", "k8s.io/client-go/kubernetes", "k8s.io/client-go/rest",
		},
		"wiring of the node's agent, and of the doctor that checks it",
	},
	"cmd/coe-bridge/passwd": {[]string{"restconf/access"}, []string{"github.com/spf13/cobra", "golang.org/x/crypto/bcrypt", "golang.org/x/term"}, "writes lines of --auth-file"},
}

// withoutHTTP are the packages that must not import net/http.
var withoutHTTP = []string{
	"coe/agentstream", "coe/northbound", "coe/northbound/entry", "mapping/plan", "mapping/status", "restconf/document", "restconf/openapi",
	"restconf/tree", "restconf/xpath", "yang",
}

// free is the folder whose packages may import any package.
const free = "test/"

type pkg struct {
	ImportPath string
	Imports    []string
	Standard   bool
}

func TestImports(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range list(t, module+"...") {
		name := strings.TrimPrefix(p.ImportPath, module)
		if strings.HasPrefix(name, free) {
			continue
		}
		seen[name] = true
		r, found := rules[name]
		if !found {
			t.Errorf("%s has no rule: add one to test/arch, with the packages that it may import and the reason", name)
			continue
		}
		used := map[string]bool{}
		for _, i := range p.Imports {
			if i == "net/http" && slices.Contains(withoutHTTP, name) {
				t.Errorf("%s imports %s, but must not know HTTP", name, i)
			}
			allowance, allowed := r.allows(i)
			if !allowed {
				t.Errorf("%s imports %s, which its rule does not allow (%s)", name, i, r.why)
			}
			used[allowance] = true
		}
		for _, allowance := range slices.Concat(r.own, r.other) {
			if !used[allowance] {
				t.Errorf("the rule of %s allows %s, which the package does not import: remove it from the rule", name, allowance)
			}
		}
	}
	for name := range rules {
		if !seen[name] {
			t.Errorf("%s has a rule, but the package does not exist: remove the rule", name)
		}
	}
}

// allows reports whether the rule allows an import, and returns the entry of the rule that
// does. The entry is empty for the standard library.
func (r rule) allows(path string) (allowance string, allowed bool) {
	if own, ok := strings.CutPrefix(path, module); ok {
		return own, slices.Contains(r.own, own)
	}
	if first, _, _ := strings.Cut(path, "/"); !strings.Contains(first, ".") {
		return "", true
	}
	for _, f := range r.other {
		if path == f || strings.HasPrefix(path, f+"/") {
			return f, true
		}
	}
	return "", false
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
