package ovn

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// LoadTLS reads what endpoints that begin with ssl: need: our private key and
// certificate, and the certificate of the authority that signs the servers'.
// As everywhere in OVN, a server is trusted for that signature, whatever host
// its certificate names.
func LoadTLS(keyFile, certFile, caFile string) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("load northbound certificate: %w", err)
	}
	text, err := os.ReadFile(caFile)
	if err != nil {
		return nil, fmt.Errorf("load northbound CA certificate: %w", err)
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("load northbound CA certificate: %s holds no certificate in PEM form", caFile)
	}
	return &tls.Config{
		Certificates:       []tls.Certificate{pair},
		MinVersion:         tls.VersionTLS12,
		InsecureSkipVerify: true, // VerifyConnection does it, but for the host's name
		VerifyConnection: func(state tls.ConnectionState) error {
			return verify(state.PeerCertificates, authorities)
		},
	}, nil
}

func verify(chain []*x509.Certificate, authorities *x509.CertPool) error {
	if len(chain) == 0 {
		return errors.New("the server has no certificate")
	}
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{
		Roots: authorities, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	})
	return err
}
