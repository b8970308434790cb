package kubelab

import (
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/coe-bridge/coe-bridge/test/lab/kube"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// Files in the working directory of the control plane's processes.
const (
	keyFile         = "key.pem"
	certificateFile = "certificate.pem"
	tokensFile      = "tokens.csv"
	adminFile       = "admin.kubeconfig"
)

// admin is the administrator; a node's user has the node's name.
const admin = "admin"

// apiServer is the address of the API server.
var apiServer = fmt.Sprintf("https://%s:6443", ovnhost.Central)

// access has the keys of the cluster: one key is for the API server's certificate, which is self-signed, and for the tokens of
// service accounts. External clients have tokens.
type access struct {
	dir         string
	certificate []byte            // PEM
	tokens      map[string]string // by user
}

// newAccess writes the key, certificate, tokens and the administrator's kubeconfig into a new directory.
func newAccess(dir string, nodes []string) (*access, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make folder of control plane: %w", err)
	}
	names := []string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"}
	key, certificate, err := kube.ServerKey(names, net.IPv4(127, 0, 0, 1), net.IPv4(10, 96, 0, 1), net.ParseIP("fd00:10:96::1"),
		ovnhost.Central.AsSlice(), net.ParseIP(central6))
	if err != nil {
		return nil, err
	}
	encoded, err := kube.EncodeKey(key)
	if err != nil {
		return nil, err
	}
	a := &access{dir: dir, certificate: certificate, tokens: map[string]string{admin: rand.Text()}}
	lines := a.tokens[admin] + ",admin,admin,system:masters\n"
	for _, n := range nodes {
		a.tokens[n] = rand.Text()
		lines += fmt.Sprintf("%s,system:node:%s,%s,system:nodes\n", a.tokens[n], n, n)
	}
	for name, content := range map[string][]byte{
		keyFile:         encoded,
		certificateFile: a.certificate,
		tokensFile:      []byte(lines),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return nil, fmt.Errorf("write what the control plane trusts: %w", err)
		}
	}
	return a, a.writeKubeconfig(filepath.Join(dir, adminFile), admin)
}

// writeKubeconfig writes a kubeconfig for a user.
func (a *access) writeKubeconfig(path, user string) error {
	const name = "kubelab"
	k := api.NewConfig()
	k.Clusters[name] = &api.Cluster{Server: apiServer, CertificateAuthorityData: a.certificate}
	k.AuthInfos[name] = &api.AuthInfo{Token: a.tokens[user]}
	k.Contexts[name] = &api.Context{Cluster: name, AuthInfo: name}
	k.CurrentContext = name
	if err := clientcmd.WriteToFile(*k, path); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}

// RESTConfig returns the administrator's configuration for a client in this process, which is outside of the cluster's network.
func (l *Lab) RESTConfig() *rest.Config {
	return &rest.Config{
		Host:            apiServer,
		BearerToken:     l.access.tokens[admin],
		TLSClientConfig: rest.TLSClientConfig{CAData: l.access.certificate},
		QPS:             -1,
		Dial:            l.dialCentral,
	}
}

// Kubeconfig returns the path of the administrator's kubeconfig for programs in the central namespace.
func (l *Lab) Kubeconfig() string { return filepath.Join(l.access.dir, adminFile) }
