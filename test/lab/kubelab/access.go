package kubelab

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

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

// apiServer is where the API server listens.
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
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make key: %w", err)
	}
	encoded, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode key: %w", err)
	}
	a := &access{dir: dir, tokens: map[string]string{admin: rand.Text()}}
	if a.certificate, err = selfSigned(key); err != nil {
		return nil, fmt.Errorf("make certificate: %w", err)
	}
	lines := a.tokens[admin] + ",admin,admin,system:masters\n"
	for _, n := range nodes {
		a.tokens[n] = rand.Text()
		lines += fmt.Sprintf("%s,system:node:%s,%s,system:nodes\n", a.tokens[n], n, n)
	}
	for name, content := range map[string][]byte{
		keyFile:         pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: encoded}),
		certificateFile: a.certificate,
		tokensFile:      []byte(lines),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return nil, fmt.Errorf("write what the control plane trusts: %w", err)
		}
	}
	return a, a.writeKubeconfig(filepath.Join(dir, adminFile), admin)
}

func selfSigned(key *ecdsa.PrivateKey) ([]byte, error) {
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "kube-apiserver"},
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.AddDate(1, 0, 0),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		IsCA:                  true,
		DNSNames:              []string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"},
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(10, 96, 0, 1), ovnhost.Central.AsSlice()},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), err
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
