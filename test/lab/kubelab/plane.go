package kubelab

import (
	"context"
	"fmt"
	"net"
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// Client returns the administrator's client, without a rate limit.
func (l *Lab) Client() *kubernetes.Clientset { return l.client }

// startControlPlane starts the control plane in the central namespace.
func (l *Lab) startControlPlane(ctx context.Context) (err error) {
	in := func(name string) string { return filepath.Join(l.access.dir, name) }
	if l.cfg.DualStack {
		if _, err := l.OVN.Exec(ctx, ovnhost.CentralNamespace, "ip", "address", "add", central6+"/64", "dev", "underlay", "nodad"); err != nil {
			return fmt.Errorf("give the control plane an IPv6 address: %w", err)
		}
	}
	l.Etcd, err = l.launch(ctx, "etcd", nil,
		"--data-dir="+in("etcd"), "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls=http://127.0.0.1:2379", "--advertise-client-urls=http://127.0.0.1:2379",
		"--listen-peer-urls=http://127.0.0.1:2380")
	if err != nil {
		return err
	}
	args, err := l.egressArgs()
	if err != nil {
		return err
	}
	l.APIServer, err = l.launch(ctx, "kube-apiserver", l.apiServerReady, append(args,
		"--etcd-servers=http://127.0.0.1:2379",
		"--bind-address="+l.first("0.0.0.0", "::"), "--advertise-address="+l.first(ovnhost.Central.String(), central6), "--secure-port=6443",
		"--tls-cert-file="+in(certificateFile), "--tls-private-key-file="+in(keyFile), "--token-auth-file="+in(tokensFile),
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+in(keyFile), "--service-account-signing-key-file="+in(keyFile),
		"--service-cluster-ip-range="+l.ranges(ServiceCIDR, ServiceCIDR6), "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--kubelet-preferred-address-types=InternalIP", "--allow-privileged", "--profiling=false")...)
	if err != nil {
		return err
	}
	client := []string{"--kubeconfig=" + l.Kubeconfig(), "--kube-api-qps=2000", "--kube-api-burst=2000", "--leader-elect=false", "--secure-port=0", "--profiling=false"}
	l.Controllers, err = l.launch(ctx, "kube-controller-manager", l.controllersReady, append(client,
		"--service-account-private-key-file="+in(keyFile), "--root-ca-file="+in(certificateFile), "--service-cluster-ip-range="+l.ranges(ServiceCIDR, ServiceCIDR6),
		// Short times, so that a test can wait until pods of a lost node are replaced.
		"--node-monitor-grace-period=20s", "--node-monitor-period=2s")...)
	if err != nil {
		return err
	}
	l.Scheduler, err = l.launch(ctx, "kube-scheduler", nil, client...)
	return err
}

func (l *Lab) launch(ctx context.Context, name string, ready func(context.Context) error, args ...string) (*ovnhost.Process, error) {
	return l.OVN.Launch(ctx, ovnhost.Command{
		Name: name, Pod: ovnhost.CentralNamespace, Argv: append([]string{l.tools.hyperkube, name}, args...), Ready: ready,
	})
}

// apiServerReady fails unless the API server has created the default objects, of which the endpoints
// of its service are the last.
func (l *Lab) apiServerReady(ctx context.Context) error {
	if err := l.client.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error(); err != nil {
		return err
	}
	_, err := l.client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Get(ctx, "kubernetes", metav1.GetOptions{})
	return err
}

// controllersReady fails unless the controllers are running.
func (l *Lab) controllersReady(ctx context.Context) error {
	_, err := l.client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
	return err
}

func (l *Lab) dialCentral(ctx context.Context, network, address string) (net.Conn, error) {
	return l.OVN.Dial(ctx, ovnhost.CentralNamespace, network, address)
}
