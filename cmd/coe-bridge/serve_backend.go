package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coe-bridge/coe-bridge/cmd/bridge"
	"github.com/coe-bridge/coe-bridge/files"
	"github.com/coe-bridge/coe-bridge/mapping/backend/odl"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
)

// backendFlags say how each backend is reached.
type backendFlags struct {
	ovnNB, ovnCert, ovnKey, ovnCA                       string
	odlURL, odlAuth, odlCert, odlKey, odlCA, odlDialect string
}

func (f *backendFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.ovnNB, "ovn-nb", "unix:/run/ovn/ovnnb_db.sock", "OVN northbound database: unix:PATH, tcp:HOST:PORT or ssl:HOST:PORT, several with commas")
	flags.StringVar(&f.ovnCert, "ovn-cert", "", "PEM file of a client certificate for ssl: (with --ovn-key and --ovn-ca); read again when it changes")
	flags.StringVar(&f.ovnKey, "ovn-key", "", "PEM file of the certificate's key")
	flags.StringVar(&f.ovnCA, "ovn-ca", "", "PEM file of the CAs of the database servers' certificates, which need not name a host; needed for ssl:, read again when it changes")
	flags.StringVar(&f.odlURL, "odl-url", "http://127.0.0.1:8181", "OpenDaylight: http://HOST:PORT or https://HOST:PORT, several of a cluster with commas")
	flags.StringVar(&f.odlAuth, "odl-auth-file", "", "file with the line user:password for OpenDaylight, read again when it changes")
	flags.StringVar(&f.odlCA, "odl-ca-file", "", "PEM file of the CA of OpenDaylight's certificate; default: the system's CAs; read again when it changes")
	flags.StringVar(&f.odlCert, "odl-cert", "", "PEM file of a client certificate for OpenDaylight (with --odl-key); read again when it changes")
	flags.StringVar(&f.odlKey, "odl-key", "", "PEM file of the certificate's key")
	flags.StringVar(&f.odlDialect, "odl-dialect", "", "OpenDaylight's RESTCONF: "+strings.Join(odl.Dialects(), ", ")+"; found out without it")
	_ = cmd.RegisterFlagCompletionFunc("odl-dialect", cobra.FixedCompletions(odl.Dialects(), cobra.ShellCompDirectiveNoFileComp))
}

// all is the configuration of each backend that is named, of which none may be twice.
func (f *backendFlags) all(names []string, follow *files.Follower) (all []bridge.BackendConfig, err error) {
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			return nil, fmt.Errorf("--backend: %s is there twice", name)
		}
		cfg, err := f.config(name, follow)
		if err != nil {
			return nil, err
		}
		all = append(all, cfg)
	}
	if len(all) == 0 {
		return nil, errors.New("--backend: want " + strings.Join(bridge.Backends(), ", "))
	}
	return all, nil
}

// config is that of the backend of a name. The files of its TLS are followed.
func (f *backendFlags) config(name string, follow *files.Follower) (cfg bridge.BackendConfig, err error) {
	cfg = bridge.BackendConfig{
		Name: name,
		OVN:  ovn.Config{Endpoints: f.ovnNB},
		ODL:  odl.Config{URLs: f.odlURL, AuthFile: f.odlAuth, Dialect: f.odlDialect},
	}
	switch {
	case name == "ovn" && strings.Contains(f.ovnNB, "ssl:"):
		cfg.OVN.TLS, err = f.ovnTLS(follow)
	case name == "odl" && strings.Contains(f.odlURL, "https:"):
		var client *files.Client
		client, err = clientTLS(follow,
			fileFlag{"--odl-ca-file", f.odlCA}, fileFlag{"--odl-cert", f.odlCert}, fileFlag{"--odl-key", f.odlKey})
		if err == nil {
			cfg.ODL.TLS = client.Config
		}
	}
	return cfg, err
}

// ovnTLS is for ssl: endpoints. Certificates of OVN name no hosts.
func (f *backendFlags) ovnTLS(follow *files.Follower) (*tls.Config, error) {
	ca := fileFlag{"--ovn-ca", f.ovnCA}
	if ca.path == "" {
		return nil, errors.New("--ovn-nb ssl: is given without --ovn-ca: a server's certificate is judged by its CA alone")
	}
	client, err := clientTLS(follow, ca, fileFlag{"--ovn-cert", f.ovnCert}, fileFlag{"--ovn-key", f.ovnKey})
	if err != nil {
		return nil, err
	}
	return client.AnyHost(), nil
}
