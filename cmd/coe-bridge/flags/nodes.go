package flags

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/nodenet"
	"github.com/coe-bridge/coe-bridge/coe/ranges"
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
		"IPv4 addresses for management ports of nodes, three for each node, used nowhere else; with a comma and an IPv6 prefix, such as fd00:96::/64, nodes connect by IPv6 too; empty: nodes have no management port")
	cmd.Flags().StringSliceVar(&f.services, "service-network", nil,
		"prefixes of cluster addresses of services outside the pools, which nodes must reach, such as 10.96.0.0/12; several with commas")
	cmd.Flags().StringSliceVar(&f.pods, "pod-network", nil,
		"prefixes of pod addresses outside the pools, which nodes must reach; several with commas")
	cmd.Flags().StringSliceVar(&f.external, "external-addresses", nil,
		"prefixes that allow external addresses of Kubernetes services; several with commas; empty allows none")
	cmd.Flags().StringSliceVar(&f.noMasquerade, "no-masquerade", nil,
		"prefixes outside the cluster to which pods keep their address, because routes to pods exist there; several with commas; 0.0.0.0/0,::/0 for all")
	f.nodePorts.Register(cmd)
}

// Config returns the settings. They must not overlap the pools.
func (f *Nodes) Config(pools []dhcppool.Pool) (cfg ranges.NodesConfig, err error) {
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
	if cfg.NodePorts, err = f.nodePorts.Range(); err != nil {
		return cfg, err
	}
	if cfg.HostPorts, err = f.nodePorts.Hosts(); err != nil {
		return cfg, err
	}
	return cfg, f.setNetwork(&cfg, pools)
}

// prefixes returns the prefix of IPv4 of the nodes, and that of IPv6 if there is one.
func (f *Nodes) prefixes() ([]netip.Prefix, error) {
	all, err := parsePrefixes("node-network", strings.Split(f.network, ","))
	if err != nil {
		return nil, err
	}
	if len(all) > 2 || !all[0].Addr().Is4() || len(all) == 2 && !all[1].Addr().Is6() {
		return nil, fmt.Errorf("--node-network %s: want an IPv4 prefix, and an IPv6 prefix after it if nodes connect by IPv6 too", f.network)
	}
	numbers := nodenet.Range{Prefix: all[0]}.Numbers()
	if numbers == 0 {
		return nil, fmt.Errorf("--node-network %s: want IPv4 addresses for one node at least: a prefix of 29 bits or fewer", all[0])
	}
	if len(all) == 2 && (nodenet.Range{Prefix: all[1]}).Numbers() < numbers {
		return nil, fmt.Errorf("--node-network %s: it has fewer addresses than %s: want a prefix of %d bits or fewer", all[1], all[0], 96+all[0].Bits())
	}
	return all, nil
}

// setNetwork sets the networks of the nodes.
func (f *Nodes) setNetwork(cfg *ranges.NodesConfig, pools []dhcppool.Pool) error {
	if f.network == "" {
		if len(cfg.NoMasquerade) > 0 {
			return errors.New("--no-masquerade needs --node-network: without management ports pods do not leave the cluster through nodes")
		}
		return nil
	}
	all, err := f.prefixes()
	if err != nil {
		return err
	}
	cfg.Network = nodenet.Range{Prefix: all[0]}
	if len(all) == 2 {
		cfg.NetworkIPv6 = nodenet.Range{Prefix: all[1]}
	}
	for _, p := range cfg.NoMasquerade {
		if p.Addr().Is6() && len(all) == 1 {
			return fmt.Errorf("--no-masquerade %s: pods leave the cluster by IPv6 only if --node-network has an IPv6 prefix too", p)
		}
	}
	taken := slices.Concat(nodenet.OwnRanges(), cfg.Pods, cfg.Services)
	for _, p := range pools {
		taken = append(taken, p.Subnet)
	}
	for _, t := range taken {
		for _, prefix := range all {
			if t.Overlaps(prefix) {
				return fmt.Errorf("--node-network %s: it overlaps %s, which has another use", prefix, t)
			}
		}
	}
	return nil
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

// CheckEgressPort returns an error for a port on which agents cannot answer the bridge, or that nodes use otherwise. The
// bridge asks the next port too, on which nothing must listen.
func CheckEgressPort(port uint16, nodes ranges.NodesConfig) error {
	if port == 0 || port == math.MaxUint16 {
		return fmt.Errorf("--egress-port %d: want a port from 1 to 65534, because the bridge asks the next port too", port)
	}
	others := []coe.PortRange{{First: 2379, Last: 2380}, {First: 6640, Last: 6644}, {First: 10250, Last: 10250}}
	for _, asked := range []uint16{port, port + 1} {
		has := func(r coe.PortRange) bool { return r.Contains(asked) }
		use := ""
		switch {
		case has(nodes.NodePorts):
			use = "is in --node-ports " + nodes.NodePorts.String()
		case slices.ContainsFunc(nodes.HostPorts, has):
			use = "is in --host-ports"
		case slices.ContainsFunc(others, has):
			use = "belongs to etcd, OVN, Open vSwitch or kubelet"
		default:
			continue
		}
		return fmt.Errorf("--egress-port %d: port %d %s: choose a port that is free on nodes, and the next one too", port, asked, use)
	}
	return nil
}
