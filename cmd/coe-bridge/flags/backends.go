package flags

import (
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coe-bridge/coe-bridge/cmd/bridge"
	"github.com/coe-bridge/coe-bridge/files"
	"github.com/coe-bridge/coe-bridge/mapping"
	"github.com/coe-bridge/coe-bridge/mapping/backend/odl"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
)

// Backends has the flags that say how each backend is reached.
type Backends struct {
	OVNNB, ODLURL       string
	ovnSB               string // see RegisterSouthbound
	ovnLayout           string
	odlAuth, odlDialect string
	ovnTLS, odlTLS      TLS
}

// Register adds the flags to a command.
func (f *Backends) Register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.OVNNB, "ovn-nb", "unix:/run/ovn/ovnnb_db.sock", "OVN northbound database: unix:PATH, tcp:HOST:PORT or ssl:HOST:PORT; all members of a cluster, with commas")
	RegisterLayout(cmd, &f.ovnLayout)
	FileVar(flags, &f.ovnTLS.Cert, "ovn-cert", "PEM file of a client certificate for ssl: (with --ovn-key and --ovn-ca); read again when it changes")
	FileVar(flags, &f.ovnTLS.Key, "ovn-key", "PEM file of the certificate's key")
	FileVar(flags, &f.ovnTLS.CA, "ovn-ca", "PEM file of the CAs of the database servers' certificates, which need not name a host; needed for ssl:, read again when it changes")
	flags.StringVar(&f.ODLURL, "odl-url", "", "OpenDaylight: http://HOST:PORT or https://HOST:PORT, several of a cluster with commas; needed for the backend odl")
	flags.StringVar(&f.odlAuth, "odl-auth-file", "", "file with the line user:password for OpenDaylight, read again when it changes")
	FileVar(flags, &f.odlTLS.CA, "odl-ca-file", "PEM file of the CA of OpenDaylight's certificate; default: the system's CAs; read again when it changes")
	FileVar(flags, &f.odlTLS.Cert, "odl-cert", "PEM file of a client certificate for OpenDaylight (with --odl-key); read again when it changes")
	FileVar(flags, &f.odlTLS.Key, "odl-key", "PEM file of the certificate's key")
	flags.StringVar(&f.odlDialect, "odl-dialect", "", "OpenDaylight's RESTCONF: "+strings.Join(odl.Dialects(), ", ")+"; detected if empty")
	_ = cmd.RegisterFlagCompletionFunc("odl-dialect", cobra.FixedCompletions(odl.Dialects(), cobra.ShellCompDirectiveNoFileComp))
}

// RegisterSouthbound adds --ovn-sb to a command.
func (f *Backends) RegisterSouthbound(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.ovnSB, "ovn-sb", "", "OVN southbound database, to follow how far OVN is with each pod and by which names it has the nodes: as --ovn-nb, with the same certificate; empty for less detail in trace and metrics")
}

// RegisterLayout adds --ovn-layout to a command.
func RegisterLayout(cmd *cobra.Command, layout *string) {
	cmd.Flags().StringVar(layout, "ovn-layout", "",
		"logical switches of OVN: node, one for each node; elan, one for each namespace on a node; default: node; with --isolation namespace: elan; a bridge whose datastore an earlier version has created: elan")
	_ = cmd.RegisterFlagCompletionFunc("ovn-layout", cobra.FixedCompletions(
		[]string{string(ovn.LayoutELAN), string(ovn.LayoutNode)}, cobra.ShellCompDirectiveNoFileComp))
}

// Layout returns the layout of OVN: that of --ovn-layout, or the default.
func Layout(text string, i mapping.Isolation) (ovn.Layout, error) {
	if text == "" {
		return bridge.DefaultLayout(i), nil
	}
	return parseLayout(text)
}

func parseLayout(text string) (ovn.Layout, error) {
	layout, err := ovn.ParseLayout(text)
	if err != nil {
		return "", fmt.Errorf("--ovn-layout: %w", err)
	}
	return layout, nil
}

// Isolation returns how the named backends keep namespaces apart.
func (f *Backends) Isolation(names []string, i mapping.Isolation) (mapping.Isolation, error) {
	layout, err := Layout(f.ovnLayout, i)
	if err != nil || layout != ovn.LayoutNode || i == mapping.IsolationNone {
		return i, err
	}
	if !slices.Equal(names, []string{"ovn"}) {
		return i, errors.New("--isolation namespace: with --ovn-layout node use --backend ovn alone, or --ovn-layout elan")
	}
	return i.OnSwitches(true), nil
}

// All returns the configuration of each named backend, without a layout of OVN if there is no --ovn-layout. A name must not be repeated.
func (f *Backends) All(names []string, follow *files.Follower) (all []bridge.BackendConfig, err error) {
	var layout ovn.Layout
	if f.ovnLayout != "" {
		if layout, err = parseLayout(f.ovnLayout); err != nil {
			return nil, err
		}
	}
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			return nil, fmt.Errorf("--backend: %s is named twice", name)
		}
		cfg, err := f.config(name, follow)
		if err != nil {
			return nil, err
		}
		cfg.OVN.Layout = layout
		all = append(all, cfg)
	}
	if len(all) == 0 {
		return nil, errors.New("--backend: want " + strings.Join(bridge.Backends(), ", "))
	}
	return all, nil
}

// config returns the configuration of a backend. The files of its TLS are followed.
func (f *Backends) config(name string, follow *files.Follower) (cfg bridge.BackendConfig, err error) {
	cfg = bridge.BackendConfig{
		Name: name,
		OVN:  ovn.Config{Endpoints: f.OVNNB, Southbound: f.ovnSB},
		ODL:  odl.Config{URLs: f.ODLURL, AuthFile: f.odlAuth, Dialect: f.odlDialect},
	}
	switch {
	case name == "odl" && f.ODLURL == "":
		err = errors.New("backend odl is given without --odl-url: name the URL of OpenDaylight, as in --odl-url http://192.168.33.5:8181")
	case name == "ovn" && strings.Contains(f.OVNNB+f.ovnSB, "ssl:"):
		cfg.OVN.TLS, err = f.tlsOfOVN(follow)
	case name == "odl" && strings.Contains(f.ODLURL, "https:"):
		var client *files.Client
		if client, err = f.odlTLS.Client(follow); err == nil {
			cfg.ODL.TLS = client.Config
		}
	}
	return cfg, err
}

// tlsOfOVN returns the TLS settings of ssl: endpoints. Certificates of OVN name no hosts.
func (f *Backends) tlsOfOVN(follow *files.Follower) (*tls.Config, error) {
	if f.ovnTLS.CA.Path == "" {
		flag := "--ovn-sb"
		if strings.Contains(f.OVNNB, "ssl:") {
			flag = "--ovn-nb"
		}
		return nil, fmt.Errorf("%s ssl: is given without --ovn-ca: a server's certificate is judged by its CA alone", flag)
	}
	client, err := f.ovnTLS.Client(follow)
	if err != nil {
		return nil, err
	}
	return client.AnyHost(), nil
}
