package main

import (
	"fmt"
	"net/netip"

	"github.com/spf13/cobra"

	"github.com/coe-bridge/coe-bridge/cmd/bridge"
	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/dhcppool"
)

// nodeFlags are the flags of how nodes are joined with the network.
type nodeFlags struct {
	network                  string
	pods, services, external []string
}

func (f *nodeFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.network, "node-network", "100.96.0.0/16",
		"IPv4 addresses for nodes' management ports, two a node; used nowhere else. Empty: nodes have none")
	cmd.Flags().StringSliceVar(&f.services, "service-network", nil,
		"prefixes of services' cluster addresses that come from no pool, which nodes' programs are to reach, as 10.96.0.0/12; several with commas")
	cmd.Flags().StringSliceVar(&f.pods, "pod-network", nil,
		"prefixes of pods' addresses that come from no pool, which nodes' programs are to reach; several with commas")
	cmd.Flags().StringSliceVar(&f.external, "external-addresses", nil,
		"prefixes of the external addresses that services of Kubernetes may have; several with commas. Empty: none")
}

// config reads the flags; pools are those that nothing of them may overlap.
func (f *nodeFlags) config(pools []dhcppool.Pool) (cfg bridge.NodesConfig, err error) {
	if cfg.Pods, err = parsePrefixes("pod-network", f.pods); err != nil {
		return cfg, err
	}
	if cfg.Services, err = parsePrefixes("service-network", f.services); err != nil {
		return cfg, err
	}
	if cfg.External, err = parsePrefixes("external-addresses", f.external); err != nil {
		return cfg, err
	}
	if f.network == "" {
		return cfg, nil
	}
	prefix, err := netip.ParsePrefix(f.network)
	if err != nil {
		return cfg, fmt.Errorf("--node-network: %w", err)
	}
	cfg.Network = coe.NodeNetwork{Prefix: prefix.Masked()}
	if cfg.Network.Numbers() == 0 {
		return cfg, fmt.Errorf("--node-network %s: want IPv4 addresses, and room for one node at least: a prefix of 29 bits or fewer", prefix)
	}
	taken := append([]netip.Prefix{bridge.TransitLinks}, cfg.Pods...)
	taken = append(taken, cfg.Services...)
	for _, p := range pools {
		taken = append(taken, p.Subnet)
	}
	for _, t := range taken {
		if t.Overlaps(prefix) {
			return cfg, fmt.Errorf("--node-network %s: it overlaps %s, which has another use", prefix, t)
		}
	}
	return cfg, nil
}

func parsePrefixes(flag string, texts []string) ([]netip.Prefix, error) {
	var all []netip.Prefix
	for _, text := range texts {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("--%s: %w", flag, err)
		}
		all = append(all, p.Masked())
	}
	return all, nil
}
