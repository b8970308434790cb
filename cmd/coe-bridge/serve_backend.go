package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coe-bridge/coe-bridge/cmd/bridge"
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
	flags.StringVar(&f.ovnCert, "ovn-cert", "", "PEM file of a client certificate for ssl: (with --ovn-key and --ovn-ca)")
	flags.StringVar(&f.ovnKey, "ovn-key", "", "PEM file of the certificate's key")
	flags.StringVar(&f.ovnCA, "ovn-ca", "", "PEM file of the authority that signed the database server's certificate")
	flags.StringVar(&f.odlURL, "odl-url", "http://127.0.0.1:8181", "OpenDaylight: http://HOST:PORT or https://HOST:PORT, several of a cluster with commas")
	flags.StringVar(&f.odlAuth, "odl-auth-file", "", "file with the line user:password for OpenDaylight, read again when it changes")
	flags.StringVar(&f.odlCA, "odl-ca-file", "", "PEM file of the authority that signed OpenDaylight's certificate; whom the system trusts without it")
	flags.StringVar(&f.odlCert, "odl-cert", "", "PEM file of a client certificate for OpenDaylight (with --odl-key)")
	flags.StringVar(&f.odlKey, "odl-key", "", "PEM file of the certificate's key")
	flags.StringVar(&f.odlDialect, "odl-dialect", "", "OpenDaylight's RESTCONF: "+strings.Join(odl.Dialects(), ", ")+"; found out without it")
	_ = cmd.RegisterFlagCompletionFunc("odl-dialect", cobra.FixedCompletions(odl.Dialects(), cobra.ShellCompDirectiveNoFileComp))
}

// all is the configuration of each backend that is named, of which none may be twice.
func (f *backendFlags) all(names []string) (all []bridge.BackendConfig, err error) {
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			return nil, fmt.Errorf("--backend: %s is there twice", name)
		}
		cfg, err := f.config(name)
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

// config is that of the backend of a name.
func (f *backendFlags) config(name string) (cfg bridge.BackendConfig, err error) {
	cfg = bridge.BackendConfig{
		Name: name,
		OVN:  ovn.Config{Endpoints: f.ovnNB},
		ODL:  odl.Config{URLs: f.odlURL, AuthFile: f.odlAuth, Dialect: f.odlDialect},
	}
	if strings.Contains(f.ovnNB, "ssl:") {
		cfg.OVN.TLS, err = clientTLS(
			fileFlag{"--ovn-ca", f.ovnCA}, fileFlag{"--ovn-cert", f.ovnCert}, fileFlag{"--ovn-key", f.ovnKey})
	}
	if err == nil && strings.Contains(f.odlURL, "https:") {
		cfg.ODL.TLS, err = clientTLS(
			fileFlag{"--odl-ca-file", f.odlCA}, fileFlag{"--odl-cert", f.odlCert}, fileFlag{"--odl-key", f.odlKey})
	}
	return cfg, err
}
