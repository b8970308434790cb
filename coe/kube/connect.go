package kube

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Connect returns a configuration for clients of the API server that a kubeconfig
// names or, where its path is empty, of the cluster in which this process is a pod.
// It sends nothing.
//
// Credentials may be replaced while clients work: when one of the files changes
// from which the configuration was read (the kubeconfig, the certificates and the
// token that it names), requests from then on use what is there now, another
// server included. What can't be read keeps the configuration as it was. Requests
// are not rationed, as the API server does that itself.
func Connect(kubeconfig, version string, log *slog.Logger) (*rest.Config, error) {
	load, err := loader(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("connect to Kubernetes: %w", err)
	}
	r := &reloading{log: log, load: func() (*rest.Config, error) {
		config, err := load()
		if err == nil {
			config.UserAgent = "coe-bridge/" + version
		}
		return config, err
	}, kubeconfig: kubeconfig}
	if err := r.reload(); err != nil {
		return nil, fmt.Errorf("connect to Kubernetes: %w", err)
	}
	r.first = r.now.server
	return &rest.Config{
		Host:           r.first.String(),
		Transport:      r,
		UserAgent:      "coe-bridge/" + version,
		QPS:            -1,
		WarningHandler: rest.NoWarnings{},
		ContentConfig: rest.ContentConfig{
			ContentType:        "application/vnd.kubernetes.protobuf",
			AcceptContentTypes: "application/vnd.kubernetes.protobuf,application/json",
		},
	}, nil
}

// loader is how the configuration is read.
func loader(kubeconfig string) (func() (*rest.Config, error), error) {
	if kubeconfig == "" {
		if os.Getenv("KUBERNETES_SERVICE_HOST") == "" {
			return nil, errors.New("this process is no pod of a cluster: give the path of a kubeconfig")
		}
		return rest.InClusterConfig, nil
	}
	return func() (*rest.Config, error) {
		rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig}
		return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{}).ClientConfig()
	}, nil
}

// checkEvery is how often, at most, the files are looked at.
const checkEvery = time.Second

// reloading is a transport with the credentials of files that may change.
type reloading struct {
	log        *slog.Logger
	load       func() (*rest.Config, error)
	kubeconfig string
	first      *url.URL // the server to which requests are addressed

	mu      sync.Mutex
	checked time.Time
	prints  []fingerprint
	now     connection
	failing bool
}

// connection is a way to the server, with credentials.
type connection struct {
	http.RoundTripper
	server *url.URL
	base   *http.Transport
}

// fingerprint tells whether a file is still the one that was read.
type fingerprint struct {
	path string
	info os.FileInfo // nil where there was none
}

// RoundTrip sends a request to the server of now, with the credentials of now.
func (r *reloading) RoundTrip(request *http.Request) (*http.Response, error) {
	to := r.current()
	if *to.server != *r.first {
		request = request.Clone(request.Context())
		request.URL.Scheme, request.URL.Host, request.Host = to.server.Scheme, to.server.Host, ""
		request.URL.Path = path.Join("/", to.server.Path, strings.TrimPrefix(request.URL.Path, r.first.Path))
	}
	response, err := to.RoundTrip(request)
	if err == nil {
		boundBody(request.Context(), response)
	}
	return response, err
}

// current is the connection by the files as they are now.
func (r *reloading) current() connection {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.checked) < checkEvery || !r.changed() {
		return r.now
	}
	before := r.now
	err := r.reload()
	switch {
	case err == nil:
		r.failing = false
		before.base.CloseIdleConnections()
		r.log.Info("credentials for Kubernetes were replaced", "server", r.now.server.Host)
	case !r.failing:
		r.failing = true
		r.log.Error("changed credentials for Kubernetes can't be read; keeping those from before", "err", err)
	}
	return r.now
}

// changed looks whether the files are others than those that were read.
func (r *reloading) changed() bool {
	r.checked = time.Now()
	for _, p := range r.prints {
		if !p.same(fingerprintOf(p.path)) {
			return true
		}
	}
	return false
}

// reload reads the files. The fingerprints are from before that, so that a change
// meanwhile is seen the next time.
func (r *reloading) reload() error {
	config, err := r.load()
	if err != nil {
		return err
	}
	var prints []fingerprint
	for _, file := range []string{r.kubeconfig, config.CAFile, config.CertFile, config.KeyFile, config.BearerTokenFile} {
		if file != "" {
			prints = append(prints, fingerprintOf(file))
		}
	}
	if config, err = r.load(); err != nil {
		return err
	}
	now, err := dial(config)
	if err != nil {
		return err
	}
	r.prints, r.now = prints, now
	return nil
}

func fingerprintOf(path string) fingerprint {
	info, err := os.Stat(path)
	if err != nil {
		return fingerprint{path: path}
	}
	return fingerprint{path: path, info: info}
}

func (p fingerprint) same(other fingerprint) bool {
	if p.info == nil || other.info == nil {
		return p.info == nil && other.info == nil
	}
	return os.SameFile(p.info, other.info) && p.info.Size() == other.info.Size() && p.info.ModTime().Equal(other.info.ModTime())
}
