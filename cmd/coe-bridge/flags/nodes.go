package flags

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/spf13/cobra"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/ipam"
	"github.com/coe-bridge/coe-bridge/dhcppool"
)

// Nodes has the flags that say how nodes are joined with the network.
type Nodes struct {
	network                  string
	pods, services, external []string
	noMasquerade             []string
	nodePorts                NodePorts
}

// NodePorts has the flags with the ports on which nodes answer for services and pods.
type NodePorts struct {
	text string
	host []string
}

// Register adds the flags to a command.
func (f *NodePorts) Register(cmd *cobra.Command) {
	cmd.Flags().StringSliceVar(&f.host, "host-ports", nil,
		"ports and ranges that pods may request with hostPort, such as 80,443,8000-8999; empty: nodes serve no host ports")
	cmd.Flags().StringVar(&f.text, "node-ports", "30000-32767",
		"range of the node ports of services, the API server's --service-node-port-range; empty: nodes serve no node ports")
}

// Hosts returns the ports that pods may request. They must not be node ports.
func (f *NodePorts) Hosts() ([]coe.PortRange, error) {
	node, err := f.Range()
	if err != nil {
		return nil, err
	}
	host, err := coe.ParsePorts(f.host)
	if err != nil {
		return nil, fmt.Errorf("--host-ports: %w", err)
	}
	for _, r := range host {
		if r.Overlaps(node) {
			return nil, fmt.Errorf("--host-ports: %s overlaps --node-ports %s, which are of services", r, node)
		}
	}
	return host, nil
}

// Range returns the range of node ports.
func (f *NodePorts) Range() (r coe.PortRange, err error) {
	if f.text == "" {
		return r, nil
	}
	if r, err = coe.ParsePortRange(f.text); err != nil {
		return r, fmt.Errorf("--node-ports: %w", err)
	}
	return r, nil
}

// Register adds the flags to a command.
func (f *Nodes) Register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.network, "node-network", "100.96.0.0/16",
		"IPv4 addresses for management ports of nodes, three for each node, used nowhere else; empty: nodes have no management port")
	cmd.Flags().StringSliceVar(&f.services, "service-network", nil,
		"prefixes of cluster addresses of services outside the pools, which nodes must reach, such as 10.96.0.0/12; several with commas")
	cmd.Flags().StringSliceVar(&f.pods, "pod-network", nil,
		"prefixes of pod addresses outside the pools, which nodes must reach; several with commas")
	cmd.Flags().StringSliceVar(&f.external, "external-addresses", nil,
		"prefixes that allow external addresses of Kubernetes services; several with commas; empty allows none")
	cmd.Flags().StringSliceVar(&f.noMasquerade, "no-masquerade", nil,
		"IPv4 prefixes outside the cluster to which pods keep their address, because routes to pods exist there; several with commas; 0.0.0.0/0 for all")
	f.nodePorts.Register(cmd)
}

// Config returns the settings. They must not overlap the pools.
func (f *Nodes) Config(pools []dhcppool.Pool) (cfg ipam.NodesConfig, err error) {
	if cfg.Pods, err = parsePrefixes("pod-network", f.pods); err != nil {
		return cfg, err
	}
	if cfg.Services, err = parsePrefixes("service-network", f.services); err != nil {
		return cfg, err
	}
	if cfg.External, err = parsePrefixes("external-addresses", f.external); err != nil {
		return cfg, err
	}
	if cfg.NoMasquerade, err = parsePrefixes("no-masquerade", f.noMasquerade); err != nil {
		return cfg, err
	}
	for _, p := range cfg.NoMasquerade {
		if !p.Addr().Is4() {
			return cfg, fmt.Errorf("--no-masquerade %s: want an IPv4 prefix: pods leave the cluster by IPv4 only", p)
		}
	}
	if cfg.NodePorts, err = f.nodePorts.Range(); err != nil {
		return cfg, err
	}
	if cfg.HostPorts, err = f.nodePorts.Hosts(); err != nil {
		return cfg, err
	}
	if f.network == "" {
		if len(cfg.NoMasquerade) > 0 {
			return cfg, errors.New("--no-masquerade needs --node-network: without management ports pods do not leave the cluster through nodes")
		}
		return cfg, nil
	}
	prefix, err := netip.ParsePrefix(f.network)
	if err != nil {
		return cfg, fmt.Errorf("--node-network: %w", err)
	}
	cfg.Network = coe.NodeNetwork{Prefix: prefix.Masked()}
	if cfg.Network.Numbers() == 0 {
		return cfg, fmt.Errorf("--node-network %s: want IPv4 addresses for one node at least: a prefix of 29 bits or fewer", prefix)
	}
	taken := append([]netip.Prefix{ipam.TransitLinks}, cfg.Pods...)
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
