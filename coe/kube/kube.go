// Package kube is the Kubernetes source: it tells the Store what the API server
// says of namespaces, nodes, pods, services, endpoint slices and network policies. It knows neither
// the model nor what is chosen for a pod.
//
// There is no informer cache. A cache would hold every object a second time, and
// pods are many and large: here each object is converted as it is decoded, and
// forgotten. The Store, and a table of what was said last that shares its values,
// are the only memory. So there is no queue of deltas either and there are no
// tombstones: what a list lacks and was said before is taken back in the step in
// which the list is said.
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
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/coe-bridge/coe-bridge/coe"
)

// InterfacesAnnotation is the annotation in which a pod shows its interfaces.
const InterfacesAnnotation = "coe-bridge.io/interfaces"

// Config is what a Source needs.
type Config struct {
	Client kubernetes.Interface
	// Store must have been made with the origin coe.Kubernetes.
	Store *coe.Store
	Log   *slog.Logger
	// Registerer takes the source's metrics; nil: nobody does.
	Registerer prometheus.Registerer
	// Observe, if not nil, is called for each pod of a list and each event of a pod,
	// also where the Store learns nothing new, and after the Store was told. The calls
	// follow each other in one goroutine and under no lock; no pod is read meanwhile.
	Observe func(PodSeen)
}

// PodSeen is what whoever writes to pods must know of one.
type PodSeen struct {
	UID             string
	Namespace       string
	Name            string
	ResourceVersion string
	Annotation      string // InterfacesAnnotation
	HostNetwork     bool   // on its node's network
	Finished        bool   // succeeded or failed
	Deleted         bool   // there is no such pod any more
}

// Source tells a Store what an API server says.
type Source struct {
	cfg       Config
	health    *health
	tables    *tables
	followers []func(context.Context)
}

// NewSource returns a source that says nothing before it runs.
func NewSource(cfg Config) *Source {
	t := newTables(cfg.Store, cfg.Observe)
	s := &Source{cfg: cfg, health: newHealth(cfg.Log, newMetrics(cfg.Registerer)), tables: t}
	core, discovery := cfg.Client.CoreV1(), cfg.Client.DiscoveryV1()
	add(s, resource{name: "namespaces"}, core.Namespaces(), t.namespaces)
	add(s, resource{name: "nodes"}, core.Nodes(), t.nodes)
	add(s, resource{name: "pods"}, core.Pods(""), t.pods)
	add(s, resource{name: "services", selector: served}, core.Services(""), t.services)
	add(s, resource{name: "endpointslices", group: discoveryv1.GroupName, selector: served}, discovery.EndpointSlices(""), t.endpoints)
	add(s, resource{name: "networkpolicies", group: networkingv1.GroupName}, cfg.Client.NetworkingV1().NetworkPolicies(""), t.policies)
	return s
}

// served selects the services that whoever serves services by default serves, and the
// slices that it uses: those that name another, and those that are headless, are left out.
const served = "!service.kubernetes.io/service-proxy-name,!" + corev1.IsHeadlessService

func add[L list, O object, V any](s *Source, r resource, client lister[L], t *table[O, V]) {
	r.optional = t.optional
	f := &follower[L, O, V]{resource: r, client: client, table: t, health: s.health.of(r)}
	s.followers = append(s.followers, f.run)
}

// Run follows the API server until ctx is done, and returns ctx's error. Whatever
// fails is tried again: what was said stays said meanwhile.
func (s *Source) Run(ctx context.Context) error {
	ctx = klog.NewContext(ctx, logr.FromSlogHandler(s.cfg.Log.Handler())) // what client-go has to tell
	var wg sync.WaitGroup
	for _, run := range s.followers {
		wg.Go(func() { run(ctx) })
	}
	wg.Wait()
	return ctx.Err()
}

// Renew says to the Store that Kubernetes may know of more than was said, and has all
// listed anew: a watch may lag, and whether it does it can't be asked. It is for who
// is about to act on what is absent, after another has acted on what is there. It
// does not wait.
func (s *Source) Renew() { s.tables.renew() }

// Status tells how the source fares.
func (s *Source) Status() Status { return s.health.status() }
