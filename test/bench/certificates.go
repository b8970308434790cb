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

// certificates identify a bridge and the agents of two nodes. One authority signs them.
type certificates struct {
	flags     []string // of the bridge
	authority *x509.Certificate
	nodes     []tls.Certificate
}

// client is the configuration of a client that trusts the bridge.
func (c certificates) client() *tls.Config {
	trusted := x509.NewCertPool()
	trusted.AddCert(c.authority)
	return &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS13}
}

func (b *bench) newCertificates() (c certificates, err error) {
	dir, err := b.folder("certificates")
	if err != nil {
		return c, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return c, fmt.Errorf("make a key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err == nil {
		c.authority, err = x509.ParseCertificate(der)
	}
	if err != nil {
		return c, fmt.Errorf("make an authority: %w", err)
	}
	issue := func(subject pkix.Name) (tls.Certificate, error) {
		der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
			SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: subject, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
			IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		}, c.authority, key.Public(), key)
		return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
	}
	server, err := issue(pkix.Name{CommonName: "bridge"})
	for i := range 2 {
		if err != nil {
			break
		}
		var node tls.Certificate
		node, err = issue(pkix.Name{CommonName: fmt.Sprint("system:node:node", i), Organization: []string{"system:nodes"}})
		c.nodes = append(c.nodes, node)
	}
	if err != nil {
		return c, fmt.Errorf("issue a certificate: %w", err)
	}
	text, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return c, fmt.Errorf("write a key: %w", err)
	}
	for _, f := range []struct {
		flag, name string
		content    []byte
	}{
		{"--tls-cert", "bridge.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate[0]})},
		{"--tls-key", "bridge.key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text})},
		{"--client-ca", "authority.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})},
		{"--client-roles", "roles", []byte("node:O=system:nodes\n")},
	} {
		path := filepath.Join(dir, f.name)
		if err := os.WriteFile(path, f.content, 0o600); err != nil {
			return c, fmt.Errorf("write the certificates: %w", err)
		}
		c.flags = append(c.flags, f.flag, path)
	}
	return c, nil
}
