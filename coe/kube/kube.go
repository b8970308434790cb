// Package kube follows an API server: it puts namespaces, nodes, pods, services, endpoint slices,
// network policies, ServiceCIDRs and EgressIPs into the Store. It knows neither the model nor what is chosen for a
// pod.
//
// It has no informer cache, which would hold every object a second time; pods are many and
// large. Each object is converted when it is decoded, and then dropped. The only memory is
// the Store, and a table of the current values, which it shares. So there is neither a delta
// queue nor tombstones: the step that applies a list also deletes what the list lacks.
package kube

import (
	"context"
	"log/slog"
	"sync"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/coe-bridge/coe-bridge/coe/state"
)

// InterfacesAnnotation is the annotation with the interfaces of a pod.
const InterfacesAnnotation = "coe-bridge.io/interfaces"

// NetworkReady is the condition of a pod whose network is ready, as KEP-5709 proposes it: the
// domain of the network plugin, with the suffix "network-ready".
const NetworkReady corev1.PodConditionType = "coe-bridge.io/network-ready"

// Config configures a Watcher.
type Config struct {
	Client kubernetes.Interface
	// Dynamic reads EgressIPs; nil follows none.
	Dynamic dynamic.Interface
	// EgressLabel is the label of nodes that may hold egress addresses.
	EgressLabel string
	// Store must have been created with the origin coe.Kubernetes.
	Store *state.Store
	Log   *slog.Logger
	// Registerer registers the metrics; nil registers none.
	Registerer prometheus.Registerer
	// Observe, if not nil, is called for each pod of a list and each event of a pod, even if
	// the Store does not change, and after the Store was updated. The calls are sequential and
	// without locks; no pod is read meanwhile.
	Observe func(PodSeen)
}

// PodSeen is a pod as the API server has it, for code that writes to pods.
type PodSeen struct {
	UID             string
	Namespace       string
	Name            string
	ResourceVersion string
	Annotation      string // InterfacesAnnotation
	NeedsReady      bool   // NetworkReady is one of its readiness gates
	IsReady         bool   // its condition NetworkReady is true
	HostNetwork     bool   // uses the network of its node
	Finished        bool   // succeeded or failed
	Deleted         bool   // the pod no longer exists
}

// Watcher puts the objects of an API server into a Store.
type Watcher struct {
	cfg       Config
	health    *health
	tables    *tables
	followers []func(context.Context)
}

// NewWatcher returns a Watcher that does nothing before it runs.
func NewWatcher(cfg Config) *Watcher {
	t := newTables(cfg)
	w := &Watcher{cfg: cfg, health: newHealth(cfg.Log, newMetrics(cfg.Registerer)), tables: t}
	core, discovery := cfg.Client.CoreV1(), cfg.Client.DiscoveryV1()
	add(w, resource{name: "namespaces"}, core.Namespaces(), t.namespaces)
	add(w, resource{name: "nodes"}, core.Nodes(), t.nodes)
	add(w, resource{name: "pods"}, core.Pods(""), t.pods)
	add(w, resource{name: "services", selector: served}, core.Services(""), t.services)
	add(w, resource{name: "endpointslices", group: discoveryv1.GroupName, selector: served}, discovery.EndpointSlices(""), t.endpoints)
	add(w, resource{name: "networkpolicies", group: networkingv1.GroupName}, cfg.Client.NetworkingV1().NetworkPolicies(""), t.policies)
	add(w, resource{name: serviceCIDRs, group: networkingv1.GroupName}, cfg.Client.NetworkingV1().ServiceCIDRs(), t.ranges)
	if cfg.Dynamic != nil {
		add(w, resource{name: EgressIPs.Resource, group: EgressIPs.Group}, lister[*unstructured.UnstructuredList](cfg.Dynamic.Resource(EgressIPs)), t.egress)
	}
	return w
}

// served selects the services that the default service proxy serves, and their slices. It
// excludes services for another proxy, and headless services.
const served = "!service.kubernetes.io/service-proxy-name,!" + corev1.IsHeadlessService

func add[L list, O object, V any](w *Watcher, r resource, client lister[L], t *table[O, V]) {
	r.optional = t.optional
	f := &follower[L, O, V]{resource: r, client: client, table: t, health: w.health.of(r)}
	w.followers = append(w.followers, f.run)
}

// Run follows the API server until ctx is done, and returns ctx's error. It retries all
// failures; the Store keeps its state meanwhile.
func (w *Watcher) Run(ctx context.Context) error {
	ctx = klog.NewContext(ctx, logr.FromSlogHandler(w.cfg.Log.Handler())) // for messages of client-go
	var wg sync.WaitGroup
	for _, run := range w.followers {
		wg.Go(func() { run(ctx) })
	}
	wg.Wait()
	return ctx.Err()
}

// Relist marks the origin Kubernetes as incomplete, and lists all resources again. A new leader
// needs it before it deletes anything: its watch may lag behind what the former leader has
// already acted on. Relist does not wait.
func (w *Watcher) Relist() { w.tables.relist() }

// Status returns the state of the Watcher.
func (w *Watcher) Status() Status { return w.health.status() }
