// Package kube runs a real Kubernetes control plane for tests and benchmarks:
// etcd, kube-apiserver and, when asked for, kube-controller-manager and
// kube-scheduler, each its own process, on loopback, without root. The processes
// can be killed, stopped and started again; etcd can be compacted. Nodes, pods and
// services are made by hand (see PodLoad and ServiceLoad): there is no kubelet, so
// nothing but the test says how a pod or a node is.
//
// The programs are one binary, which Build makes once. The package knows nothing
// of the bridge.
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
)

// Config says what runs. Its zero value is etcd and an API server that allows
// everything to everyone whom it knows.
type Config struct {
	// ControllerManager runs all controllers but those that judge nodes by their
	// kubelets: namespaces with content can be deleted, Deployments have pods.
	ControllerManager bool
	// Scheduler gives pods without a node one.
	Scheduler bool
	// RBAC makes the API server ask roles; the administrator is above them.
	RBAC bool
	// ServiceCIDRs are where services have their addresses, one a family; the first
	// is the default family's. Default 10.96.0.0/16.
	ServiceCIDRs []netip.Prefix
	// PodCIDRs are what the controller manager cuts nodes' podCIDRs from, one a
	// family. Default none: nodes have what the test gives them.
	PodCIDRs []netip.Prefix
	// Progress is told how the build goes, where one is needed. Default standard error.
	Progress io.Writer
}

// ControlPlane is a running control plane. Faults are made with the methods of its
// processes; a process that was killed is started again with its data and on its
// port.
type ControlPlane struct {
	Etcd, APIServer              *Process
	ControllerManager, Scheduler *Process // nil where not asked for

	config Config
	binary string
	dir    string
	port   *port
	pki    *pki
	client *kubernetes.Clientset
}

// Start builds Kubernetes where that was not done yet, starts a control plane
// and returns when it is ready, which takes about three seconds. Close ends it.
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

// prepare makes all that the processes need before they start.
func (c *ControlPlane) prepare() error {
	var err error
	if c.dir, err = os.MkdirTemp("", "kube"); err != nil {
		return err
	}
	if err := os.Mkdir(c.LogDir(), 0o755); err != nil {
		return err
	}
	if c.port, err = reservePort(); err != nil {
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

// processes are those that are asked for, in the order in which they start.
func (c *ControlPlane) processes() []*Process {
	all := []*Process{c.Etcd, c.APIServer, c.ControllerManager, c.Scheduler}
	return slices.DeleteFunc(all, func(p *Process) bool { return p == nil })
}

// Close kills the processes, waits for them, and removes the data. It may be
// called again.
func (c *ControlPlane) Close() error {
	var errs []error
	for _, p := range slices.Backward(c.processes()) {
		errs = append(errs, p.Kill())
	}
	if c.port != nil {
		errs = append(errs, c.port.release())
	}
	if c.dir != "" {
		errs = append(errs, os.RemoveAll(c.dir))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close control plane: %w", err)
	}
	return nil
}

// LogDir is the folder with one log a process.
func (c *ControlPlane) LogDir() string { return filepath.Join(c.dir, "logs") }

// URL is the API server's address.
func (c *ControlPlane) URL() string { return "https://" + c.port.String() }

// Client is the administrator's client, with the limits of RESTConfig.
func (c *ControlPlane) Client() *kubernetes.Clientset { return c.client }

// RESTConfig is the administrator's configuration, new at each call: protobuf, no
// limit on the client's side, and a connection of its own for each client that is
// made from it.
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

// direct is no proxy. client-go shares a connection among clients of one server, but
// not where there is a function that it can't compare.
func direct(*http.Request) (*url.URL, error) { return nil, nil }

// apiServerReady tells whether the API server is ready and has made what is there
// in every cluster; the service's endpoints are the last of that.
func (c *ControlPlane) apiServerReady(ctx context.Context) error {
	if err := c.client.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error(); err != nil {
		return err
	}
	_, err := c.client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Get(ctx, "kubernetes", metav1.GetOptions{})
	return err
}

// controllersReady tells whether controllers are at work.
func (c *ControlPlane) controllersReady(ctx context.Context) error {
	_, err := c.client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
	return err
}
