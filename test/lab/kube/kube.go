// Package kube runs a real Kubernetes control plane for tests and benchmarks: etcd, kube-apiserver
// and, on request, kube-controller-manager and kube-scheduler. Each is a process on loopback,
// without root. The processes can be killed, stopped and restarted; etcd can be compacted. The test
// creates nodes, pods and services (see PodLoad and ServiceLoad). There is no kubelet, so the
// test also sets the status of pods and nodes.
//
// The programs are one binary, which Build builds once. The package does not know the bridge.
package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/coe-bridge/coe-bridge/test/lab/port"
)

// Config configures a control plane. The zero value is etcd and an API server that allows everything
// to every authenticated user.
type Config struct {
	// ControllerManager runs all controllers except those that watch the kubelets: namespaces with content
	// can be deleted, Deployments get pods.
	ControllerManager bool
	// Scheduler assigns nodes to pods.
	Scheduler bool
	// RBAC enables RBAC in the API server; the administrator may do everything.
	RBAC bool
	// ServiceCIDRs are the ranges of services, one per family; the first one is the default family. Default
	// 10.96.0.0/16.
	ServiceCIDRs []netip.Prefix
	// PodCIDRs are the ranges from which the controller manager assigns podCIDRs to nodes, one per family.
	// Default none: the test assigns them.
	PodCIDRs []netip.Prefix
	// Progress receives progress reports of a build. Default standard error.
	Progress io.Writer
}

// ControlPlane is a running control plane. The methods of its processes cause faults. A killed process can be
// started again with its data and its port.
type ControlPlane struct {
	Etcd, APIServer              *Process
	ControllerManager, Scheduler *Process // nil if Config does not ask for it

	config Config
	binary string
	dir    string
	port   *port.Port
	pki    *pki
	client *kubernetes.Clientset
}

// Start builds Kubernetes if necessary, starts a control plane, and returns when it is ready, after about three
// seconds. The caller must call Close.
func Start(ctx context.Context, config Config) (*ControlPlane, error) {
	config.setDefaults()
	binary, err := Build(ctx, config.Progress)
	if err != nil {
		return nil, err
	}
	c := &ControlPlane{config: config, binary: binary}
	if err := c.prepare(); err != nil {
		return nil, errors.Join(fmt.Errorf("prepare control plane: %w", err), c.Close())
	}
	for _, p := range c.processes() {
		if err := p.Start(ctx); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	return c, nil
}

func (c *Config) setDefaults() {
	if len(c.ServiceCIDRs) == 0 {
		c.ServiceCIDRs = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}
	}
	if c.Progress == nil {
		c.Progress = os.Stderr
	}
}

// prepare creates everything that the processes need before they start.
func (c *ControlPlane) prepare() error {
	var err error
	if c.dir, err = os.MkdirTemp("", "kube"); err != nil {
		return err
	}
	if err := os.Mkdir(c.LogDir(), 0o755); err != nil {
		return err
	}
	if c.port, err = port.Reserve(); err != nil {
		return err
	}
	if c.pki, err = newPKI(c.dir); err != nil {
		return err
	}
	if c.client, err = kubernetes.NewForConfig(c.RESTConfig()); err != nil {
		return err
	}
	if err := writeKubeconfig(c.Kubeconfig(), c.RESTConfig()); err != nil {
		return err
	}
	c.addProcesses()
	return nil
}

// processes returns the requested processes, in the order of their start.
func (c *ControlPlane) processes() []*Process {
	all := []*Process{c.Etcd, c.APIServer, c.ControllerManager, c.Scheduler}
	return slices.DeleteFunc(all, func(p *Process) bool { return p == nil })
}

// Close kills the processes, waits for them, and removes the data. It may be called again.
func (c *ControlPlane) Close() error {
	var errs []error
	for _, p := range slices.Backward(c.processes()) {
		errs = append(errs, p.Kill())
	}
	if c.port != nil {
		errs = append(errs, c.port.Release())
	}
	if c.dir != "" {
		errs = append(errs, os.RemoveAll(c.dir))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close control plane: %w", err)
	}
	return nil
}

// LogDir returns the directory with one log per process.
func (c *ControlPlane) LogDir() string { return filepath.Join(c.dir, "logs") }

// URL returns the API server's URL.
func (c *ControlPlane) URL() string { return "https://" + c.port.String() }

// Client returns the administrator's client, with the limits of RESTConfig.
func (c *ControlPlane) Client() *kubernetes.Clientset { return c.client }

// RESTConfig returns a new configuration for the administrator: protobuf, no rate limit in the client, and a separate
// connection for each client.
func (c *ControlPlane) RESTConfig() *rest.Config {
	return &rest.Config{
		Host:            c.URL(),
		BearerToken:     c.pki.token,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.pki.certificate},
		QPS:             -1,
		Proxy:           direct,
		ContentConfig: rest.ContentConfig{
			ContentType:        "application/vnd.kubernetes.protobuf",
			AcceptContentTypes: "application/vnd.kubernetes.protobuf,application/json",
		},
	}
}

// direct returns no proxy. A client with its own proxy function does not share connections with other
// clients of the same server.
func direct(*http.Request) (*url.URL, error) { return nil, nil }

// apiServerReady fails unless the API server is ready and has created the default objects, of which
// the endpoints of its service are the last.
func (c *ControlPlane) apiServerReady(ctx context.Context) error {
	if err := c.client.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error(); err != nil {
		return err
	}
	_, err := c.client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Get(ctx, "kubernetes", metav1.GetOptions{})
	return err
}

// controllersReady fails unless the controllers are running.
func (c *ControlPlane) controllersReady(ctx context.Context) error {
	_, err := c.client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
	return err
}
