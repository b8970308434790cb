package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

// fileFlag is a flag that names a file.
type fileFlag struct{ flag, path string }

// together fails when one of two flags that need each other is given alone.
func together(a, b fileFlag) error {
	if a.path == "" && b.path != "" {
		a, b = b, a
	}
	if a.path != "" && b.path == "" {
		return fmt.Errorf("%s is given without %s: a certificate and its key belong together", a.flag, b.flag)
	}
	return nil
}

// clientTLS is how this program shows itself to a server, and whom it trusts:
// where ca is empty, whom the system trusts.
func clientTLS(ca, cert, key fileFlag) (*tls.Config, error) {
	out := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca.path != "" {
		pem, err := os.ReadFile(ca.path)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", ca.flag, err)
		}
		out.RootCAs = x509.NewCertPool()
		if !out.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("read %s %s: no certificate in it", ca.flag, ca.path)
		}
	}
	if err := together(cert, key); err != nil {
		return nil, err
	}
	if cert.path != "" {
		pair, err := tls.LoadX509KeyPair(cert.path, key.path)
		if err != nil {
			return nil, fmt.Errorf("read %s and %s: %w", cert.flag, key.flag, err)
		}
		// It is shown to a server that names other authorities, too: that can say why it
		// does not take it.
		out.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	return out, nil
}
