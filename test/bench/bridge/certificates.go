package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
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

// certificates identify a bridge and the agents of two nodes. One CA signs them.
type certificates struct {
	flags []string // of the bridge
	dir   string
}

const (
	caFile     = "ca.pem"
	bridgeFile = "bridge.pem"
	keyFile    = "key.pem" // the key of all certificates
	rolesFile  = "roles"
)

func nodeFile(number int) string { return fmt.Sprintf("node%d.pem", number) }

// clientConfig is the configuration of a client that trusts the bridge, with the certificate
// of a node, or with none for the writer.
func clientConfig(dir string, number int) (*tls.Config, error) {
	ca, err := os.ReadFile(filepath.Join(dir, caFile))
	if err != nil {
		return nil, fmt.Errorf("read the CA: %w", err)
	}
	config := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS13}
	config.RootCAs.AppendCertsFromPEM(ca)
	if number == writer {
		return config, nil
	}
	node, err := tls.LoadX509KeyPair(filepath.Join(dir, nodeFile(number)), filepath.Join(dir, keyFile))
	if err != nil {
		return nil, fmt.Errorf("read the certificate of node %d: %w", number, err)
	}
	config.Certificates = []tls.Certificate{node}
	return config, nil
}

func (b *bench) newCertificates() (c certificates, err error) {
	if c.dir, err = b.Folder("certificates"); err != nil {
		return c, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return c, fmt.Errorf("make a key: %w", err)
	}
	ca := certificate(pkix.Name{CommonName: "CA"})
	ca.IsCA, ca.BasicConstraintsValid, ca.KeyUsage = true, true, x509.KeyUsageCertSign
	templates := map[string]*x509.Certificate{caFile: ca, bridgeFile: certificate(pkix.Name{CommonName: "bridge"})}
	for i := range 2 {
		templates[nodeFile(i)] = certificate(pkix.Name{CommonName: fmt.Sprint("system:node:node", i), Organization: []string{"system:nodes"}})
	}
	files := map[string][]byte{rolesFile: []byte("node:O=system:nodes\n")}
	for name, template := range templates {
		der, err := x509.CreateCertificate(rand.Reader, template, ca, key.Public(), key)
		if err != nil {
			return c, fmt.Errorf("issue %s: %w", name, err)
		}
		files[name] = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return c, fmt.Errorf("encode the key: %w", err)
	}
	files[keyFile] = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(c.dir, name), content, 0o600); err != nil {
			return c, fmt.Errorf("write the certificates: %w", err)
		}
	}
	for flag, name := range map[string]string{"--tls-cert": bridgeFile, "--tls-key": keyFile, "--client-ca": caFile, "--client-roles": rolesFile} {
		c.flags = append(c.flags, flag, filepath.Join(c.dir, name))
	}
	return c, nil
}

// certificate returns the template of a certificate for servers and clients on loopback.
func certificate(subject pkix.Name) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: subject, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
}
