// Package synthapi serves synthetic objects like an API server of Kubernetes, for measurements. Objects have numbers, and
// a function makes each one when it is needed. So a large cluster is there at once, and costs no memory.
package synthapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
)

const protobufMedia = runtime.ContentTypeProtobuf

// API serves lists in pages, watches, and patches of the annotations of pods. Add adds resources.
type API struct {
	// Kubeconfig is the path of the file for clients.
	Kubeconfig string

	mux      *http.ServeMux
	server   *http.Server
	done     chan error
	encoder  runtime.Encoder
	revision atomic.Int64

	mu          sync.Mutex
	annotations map[podKey]map[string]string
}

type podKey struct{ namespace, name string }

// Serve serves an API without resources, and writes its kubeconfig to a folder.
func Serve(dir string) (*API, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	a := &API{
		Kubeconfig: filepath.Join(dir, "synthetic.kubeconfig"), mux: http.NewServeMux(), done: make(chan error, 1),
		encoder:     protobuf.NewSerializer(scheme.Scheme, scheme.Scheme),
		annotations: map[podKey]map[string]string{},
	}
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: synthetic,`+
		` clusters: [{name: synthetic, cluster: {server: "http://%s"}}], users: [{name: synthetic}],`+
		` contexts: [{name: synthetic, context: {cluster: synthetic, user: synthetic}}]}`, listener.Addr())
	if err := os.WriteFile(a.Kubeconfig, []byte(text), 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("write kubeconfig: %w", err), listener.Close())
	}
	a.mux.HandleFunc("PATCH /api/v1/namespaces/{namespace}/pods/{name}/status", a.patch)
	a.server = &http.Server{Handler: a.mux, ReadHeaderTimeout: time.Second}
	go func() { a.done <- a.server.Serve(listener) }()
	return a, nil
}

// Close ends the server.
func (a *API) Close() error {
	err := a.server.Close()
	<-a.done // the error says that the server was closed
	return err
}

// patch accepts a patch that has only annotations.
func (a *API) patch(w http.ResponseWriter, r *http.Request) {
	var p metav1.PartialObjectMetadata
	if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p.TypeMeta, p.ResourceVersion = kind("meta.k8s.io/v1", "PartialObjectMetadata"), a.nextRevision()
	p.Namespace, p.Name = r.PathValue("namespace"), r.PathValue("name")
	a.mu.Lock()
	a.annotations[podKey{p.Namespace, p.Name}] = p.Annotations
	a.mu.Unlock()
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	_ = json.NewEncoder(w).Encode(p) // the bridge may have ended
}

// Annotations returns the annotations of a pod.
func (a *API) Annotations(namespace, name string) map[string]string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.annotations[podKey{namespace, name}]
}

// Annotated returns the number of pods with annotations.
func (a *API) Annotated() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.annotations)
}

// nextRevision returns a new resource version. Every object of a list has the version 1.
func (a *API) nextRevision() string { return strconv.FormatInt(a.revision.Add(1)+1, 10) }

// poll is the interval of waiting.
const poll = 5 * time.Millisecond

// await waits until holds is true.
func await(ctx context.Context, what string, holds func() bool) error {
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for !holds() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", what, ctx.Err())
		case <-tick.C:
		}
	}
	return nil
}

// AwaitAnnotations waits until a number of pods have annotations.
func (a *API) AwaitAnnotations(ctx context.Context, pods int) error {
	return await(ctx, fmt.Sprintf("the annotations of %d pods", pods), func() bool { return a.Annotated() >= pods })
}
