package kube

import (
	"net/netip"
	"path/filepath"
	"strings"
)

// etcdSocket is etcd's address in the directory of a control plane: a unix socket with a name in the form that etcd
// requires.
const etcdSocket = "client:0"

// advertised is the endpoint of the service default/kubernetes, because loopback is not allowed. It is unused (RFC 5737).
const advertised = "192.0.2.1"

func (c *ControlPlane) addProcesses() {
	c.Etcd = c.newProcess("etcd", c.etcdReady,
		"--name=etcd",
		"--data-dir=etcd",
		"--listen-client-urls=unix://"+etcdSocket,
		"--advertise-client-urls=unix://"+etcdSocket,
		"--listen-peer-urls=unix://peer:0",
		"--initial-advertise-peer-urls=unix://peer:0",
		"--initial-cluster=etcd=unix://peer:0",
		"--unsafe-no-fsync",
		"--log-level=warn",
	)
	c.APIServer = c.newProcess("kube-apiserver", c.apiServerReady, c.apiServerArgs()...)
	if c.config.ControllerManager {
		c.ControllerManager = c.newProcess("kube-controller-manager", c.controllersReady, c.controllerManagerArgs()...)
	}
	if c.config.Scheduler {
		c.Scheduler = c.newProcess("kube-scheduler", nil, c.clientArgs()...)
	}
}

func (c *ControlPlane) newProcess(name string, ready ready, args ...string) *Process {
	return &Process{
		Name:  name,
		argv:  append([]string{c.binary, name}, args...),
		dir:   c.dir,
		log:   filepath.Join(c.LogDir(), name+".log"),
		ready: ready,
	}
}

func (c *ControlPlane) apiServerArgs() []string {
	authorization := "AlwaysAllow"
	if c.config.RBAC {
		authorization = "RBAC"
	}
	return []string{
		"--etcd-servers=unix://" + etcdSocket,
		"--etcd-compaction-interval=0", // tests compact
		"--bind-address=" + c.port.Addr().String(),
		"--secure-port=" + c.port.Number(),
		"--permit-port-sharing", // with the reservation
		"--advertise-address=" + advertised,
		"--tls-cert-file=" + certificateFile,
		"--tls-private-key-file=" + keyFile,
		"--token-auth-file=" + tokensFile,
		"--service-account-issuer=" + issuer,
		"--service-account-key-file=" + keyFile,
		"--service-account-signing-key-file=" + keyFile,
		"--service-cluster-ip-range=" + join(c.config.ServiceCIDRs),
		"--authorization-mode=" + authorization,
		// Pods need no service account, and new nodes are usable without a kubelet.
		"--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
		"--allow-privileged",
		"--profiling=false",
	}
}

func (c *ControlPlane) controllerManagerArgs() []string {
	args := append(c.clientArgs(),
		// Without kubelets these controllers would mark nodes as dead and their pods as not ready.
		"--controllers=*,-node-lifecycle-controller,-taint-eviction-controller",
		"--service-account-private-key-file="+keyFile,
		"--root-ca-file="+certificateFile,
		"--service-cluster-ip-range="+join(c.config.ServiceCIDRs),
	)
	if len(c.config.PodCIDRs) > 0 {
		args = append(args, "--allocate-node-cidrs", "--cluster-cidr="+join(c.config.PodCIDRs))
	}
	return args
}

// clientArgs are the arguments of clients of the API server: no port, no leader election, no effective rate limit.
func (c *ControlPlane) clientArgs() []string {
	return []string{
		"--kubeconfig=" + c.Kubeconfig(),
		"--kube-api-qps=2000",
		"--kube-api-burst=2000",
		"--leader-elect=false",
		"--secure-port=0",
		"--profiling=false",
	}
}

func join(prefixes []netip.Prefix) string {
	texts := make([]string, len(prefixes))
	for i, p := range prefixes {
		texts[i] = p.String()
	}
	return strings.Join(texts, ",")
}
