package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/coe-bridge/coe-bridge/test/lab/kube"
)

// The large cluster.
const (
	largePods     = 50_000
	largeNodes    = 1000
	largeServices = 5000
	largeTimeout  = 3 * time.Minute
	largePoll     = 50 * time.Millisecond
	protobufMedia = runtime.ContentTypeProtobuf
)

var (
	largePodLoad     = kube.PodLoad{Count: largePods, Namespaces: namespaces, Nodes: largeNodes}
	largeServiceLoad = kube.ServiceLoad{Count: largeServices, Endpoints: 2, Namespaces: namespaces}
)

// largeAPI answers like an API server of a cluster without changes. It serves lists in pages,
// watches without events, and patches of the annotations of pods.
type largeAPI struct {
	kubeconfig string
	server     *http.Server
	done       chan error
	listener   net.Listener
	encoder    runtime.Encoder

	mu          sync.Mutex
	annotations map[string]map[string]string // of pods, by "namespace:name"
}

func serveLarge(dir string) (*largeAPI, error) {
	s, err := newAPI(dir)
	if err != nil {
		return nil, err
	}
	s.start(s.routes())
	return s, nil
}

// newAPI returns a largeAPI that does not answer yet.
func newAPI(dir string) (*largeAPI, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	s := &largeAPI{
		kubeconfig: filepath.Join(dir, "large.kubeconfig"), done: make(chan error, 1), listener: listener,
		encoder:     protobuf.NewSerializer(scheme.Scheme, scheme.Scheme),
		annotations: map[string]map[string]string{},
	}
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: large,`+
		` clusters: [{name: large, cluster: {server: "http://%s"}}], users: [{name: large}],`+
		` contexts: [{name: large, context: {cluster: large, user: large}}]}`, listener.Addr())
	if err := os.WriteFile(s.kubeconfig, []byte(text), 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("write kubeconfig: %w", err), listener.Close())
	}
	return s, nil
}

// start starts the server.
func (s *largeAPI) start(routes http.Handler) {
	s.server = &http.Server{Handler: routes, ReadHeaderTimeout: time.Second}
	go func() { s.done <- s.server.Serve(s.listener) }()
}

func (s *largeAPI) stop() error {
	err := s.server.Close()
	<-s.done // the error says that the server was closed
	return err
}

func (s *largeAPI) routes() http.Handler {
	mux := http.NewServeMux()
	listed(s, mux, "/api/v1/namespaces", namespaces, namespaceOf, namespaceList)
	listed(s, mux, "/api/v1/nodes", largeNodes, nodeOf, nodeList)
	listed(s, mux, "/api/v1/pods", largePods, s.podOf, podList)
	listed(s, mux, "/api/v1/services", largeServices, serviceOf, serviceList)
	listed(s, mux, "/apis/discovery.k8s.io/v1/endpointslices", largeServices, sliceOf, sliceList)
	listed(s, mux, "/apis/networking.k8s.io/v1/networkpolicies", 0, nil, policyList)
	mux.HandleFunc("PATCH /api/v1/namespaces/{namespace}/pods/{name}/status", s.patch)
	return mux
}

func kind(version, kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: version, Kind: kind}
}

// listed serves a list and a watch of n objects at a path.
func listed[T any](s *largeAPI, mux *http.ServeMux, path string, n int, object func(int) T, list func(metav1.ListMeta, []T) runtime.Object) {
	mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if q.Get("watch") != "" {
			quiet(w, r)
			return
		}
		from, _ := strconv.Atoi(q.Get("continue")) // 0 if there is no token
		to := n
		if limit, err := strconv.Atoi(q.Get("limit")); err == nil {
			to = min(n, from+limit)
		}
		meta := metav1.ListMeta{ResourceVersion: "1"}
		if to < n {
			meta.Continue = strconv.Itoa(to)
		}
		items := make([]T, 0, to-from)
		for i := from; i < to; i++ {
			items = append(items, object(i))
		}
		w.Header().Set("Content-Type", protobufMedia)
		if err := s.encoder.Encode(list(meta, items), w); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
}

// quiet serves a watch without events.
func quiet(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", protobufMedia+";stream=watch")
	w.WriteHeader(http.StatusOK)
	if err := http.NewResponseController(w).Flush(); err == nil {
		<-r.Context().Done()
	}
}

func meta(m metav1.ObjectMeta, uid string) metav1.ObjectMeta {
	m.UID, m.ResourceVersion, m.CreationTimestamp = types.UID(uid), "1", metav1.Now()
	return m
}

// uid returns the UID of the i-th object of a kind, which has 4 hex digits.
func uid(kind string, i int) string { return fmt.Sprintf("00000000-0000-4000-%s-%012d", kind, i) }

func namespaceOf(i int) corev1.Namespace {
	return corev1.Namespace{ObjectMeta: meta(metav1.ObjectMeta{Name: kube.Namespace(i)}, uid("8001", i))}
}

func nodeOf(i int) corev1.Node {
	return corev1.Node{
		ObjectMeta: meta(metav1.ObjectMeta{Name: kube.Node(i)}, uid("8002", i)),
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: kube.NodeAddress(i).String()},
		}},
	}
}

func (s *largeAPI) podOf(i int) corev1.Pod {
	p := largePodLoad.Pod(i)
	p.ObjectMeta = meta(p.ObjectMeta, uid("8003", i))
	p.Status.Phase = corev1.PodRunning
	s.mu.Lock()
	defer s.mu.Unlock()
	p.Annotations = s.annotations[key(p.Namespace, p.Name)]
	return *p
}

func serviceOf(i int) corev1.Service {
	s := largeServiceLoad.Service(i)
	s.ObjectMeta = meta(s.ObjectMeta, uid("8004", i))
	s.Spec.Type = corev1.ServiceTypeClusterIP
	s.Spec.ClusterIP = netip.AddrFrom4([4]byte{10, 96, byte(1 + i/250), byte(1 + i%250)}).String()
	s.Spec.ClusterIPs = []string{s.Spec.ClusterIP}
	s.Spec.Ports[0].Protocol = corev1.ProtocolTCP
	return *s
}

func sliceOf(i int) discoveryv1.EndpointSlice {
	e := largeServiceLoad.Slice(i, 0)
	e.ObjectMeta = meta(e.ObjectMeta, uid("8005", i))
	for p := range e.Ports {
		e.Ports[p].Protocol = new(corev1.ProtocolTCP)
	}
	return *e
}

// patch accepts a patch that has only annotations.
func (s *largeAPI) patch(w http.ResponseWriter, r *http.Request) {
	var p metav1.PartialObjectMetadata
	if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p.TypeMeta, p.ResourceVersion = kind("meta.k8s.io/v1", "PartialObjectMetadata"), "2"
	p.Namespace, p.Name = r.PathValue("namespace"), r.PathValue("name")
	s.mu.Lock()
	s.annotations[key(p.Namespace, p.Name)] = p.Annotations
	s.mu.Unlock()
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	_ = json.NewEncoder(w).Encode(p) // the bridge may have ended
}

func (s *largeAPI) annotated() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.annotations)
}

func (s *largeAPI) awaitAnnotations(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, largeTimeout)
	defer cancel()
	for s.annotated() < largePods {
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the annotations of %d pods: %d have one: %w", largePods, s.annotated(), ctx.Err())
		case <-time.After(largePoll):
		}
	}
	return nil
}
