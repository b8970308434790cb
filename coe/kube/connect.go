package kube

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Connect returns a client configuration for the API server of a kubeconfig, or, if its path is
// empty, of the cluster in which this process is a pod. It sends nothing.
//
// Credentials may be replaced at any time. When one of the files of the configuration changes
// (the kubeconfig, certificates, the token), later requests use the new content, even another
// server. If the new files cannot be read, the former configuration stays. The client does
// not limit its request rate, because the API server does.
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

// loader returns the function that reads the configuration.
func loader(kubeconfig string) (func() (*rest.Config, error), error) {
	if kubeconfig == "" {
		if os.Getenv("KUBERNETES_SERVICE_HOST") == "" {
			return nil, errors.New("this process is not a pod of a cluster: set the path of a kubeconfig")
		}
		return rest.InClusterConfig, nil
	}
	return func() (*rest.Config, error) {
		rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig}
		return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{}).ClientConfig()
	}, nil
}

// checkEvery is the minimum time between two checks of the files.
const checkEvery = time.Second

// reloading is a transport whose credentials come from files that may change.
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

// connection is a transport to a server, with credentials.
type connection struct {
	http.RoundTripper
	server *url.URL
	base   *http.Transport
}

// fingerprint identifies the version of a file.
type fingerprint struct {
	path string
	info os.FileInfo // nil if there was no file
}

// RoundTrip sends a request to the current server with the current credentials.
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

// current returns the connection for the current files.
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
		r.log.Error("cannot read the new credentials for Kubernetes; using the former ones", "err", err)
	}
	return r.now
}

// changed reports whether the files differ from the loaded ones.
func (r *reloading) changed() bool {
	r.checked = time.Now()
	return slices.ContainsFunc(r.prints, func(p fingerprint) bool { return !p.same(fingerprintOf(p.path)) })
}

// reload reads the files. It takes the fingerprints first, so that the next check notices a
// concurrent change.
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
