package kube

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
)

// Files in the working directory of a control plane's processes.
const (
	keyFile         = "key.pem"
	certificateFile = "certificate.pem"
	tokensFile      = "tokens.csv"
)

// pki has the keys of a control plane. One key is for the API server's certificate, which is self-signed, and for the tokens
// of service accounts.
type pki struct {
	key         *ecdsa.PrivateKey
	certificate []byte // PEM
	token       string // of the administrator
}

// newPKI creates the keys and writes them for the processes.
func newPKI(dir string) (*pki, error) {
	key, certificate, err := ServerKey([]string{"localhost", "kubernetes.default.svc"}, net.IPv4(127, 0, 0, 1))
	if err != nil {
		return nil, err
	}
	encoded, err := EncodeKey(key)
	if err != nil {
		return nil, err
	}
	p := &pki{key: key, certificate: certificate, token: rand.Text()}
	return p, writeFiles(dir, map[string][]byte{
		keyFile:         encoded,
		certificateFile: certificate,
		tokensFile:      []byte(p.token + ",admin,admin,system:masters\n"),
	})
}

// ServerKey creates the key of an API server, and its self-signed certificate, as PEM, for these names
// and addresses.
func ServerKey(names []string, addresses ...net.IP) (key *ecdsa.PrivateKey, certificate []byte, err error) {
	if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, nil, fmt.Errorf("make key: %w", err)
	}
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
		DNSNames:              names,
		IPAddresses:           addresses,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, nil, fmt.Errorf("make certificate: %w", err)
	}
	return key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

// EncodeKey returns a key as PEM.
func EncodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	encoded, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: encoded}), nil
}

func writeFiles(dir string, files map[string][]byte) error {
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return err
		}
	}
	return nil
}
