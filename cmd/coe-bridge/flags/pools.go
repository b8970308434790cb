package flags

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/coe-bridge/coe-bridge/coe/physical"
	"github.com/coe-bridge/coe-bridge/dhcppool"
	"github.com/coe-bridge/coe-bridge/mapping"
)

// Pools is the flag --pool.
type Pools []string

// Register adds the flag to a command.
func (f *Pools) Register(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar((*[]string)(f), "pool", nil,
		"addresses for pods, [NETWORK=]SUBNET[,gateway=ADDR][,from=ADDR][,to=ADDR][,dhcp][,dns=ADDR]; may be given again")
}

// Parse returns the pools.
func (f Pools) Parse() ([]dhcppool.Pool, error) {
	var pools []dhcppool.Pool
	for _, text := range f {
		p, err := dhcppool.Parse(text)
		if err != nil {
			return nil, fmt.Errorf("--pool: %w", err)
		}
		pools = append(pools, p)
	}
	return pools, nil
}

// Mapping has the flags of the mapping.
type Mapping struct {
	isolation string
	leaseTime uint32
	physical  []string
}

// Register adds the flags to a command.
func (f *Mapping) Register(cmd *cobra.Command) {
	f.RegisterIsolation(cmd)
	cmd.Flags().Uint32Var(&f.leaseTime, "dhcp-lease-time", 3600, "lease time of DHCP, in seconds")
	cmd.Flags().StringArrayVar(&f.physical, "physical-network", nil,
		"physical network of a namespace, NAMESPACE=NETWORK[,vlan=ID],subnet=PREFIX[,subnet=PREFIX], so that its pods reach machines of the subnet there; may be given again")
}

// RegisterIsolation adds --isolation alone.
func (f *Mapping) RegisterIsolation(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.isolation, "isolation", "none", "none: every pod reaches every pod; namespace: a pod reaches only the pods of its namespace; it also decides on the layout of OVN if a bridge has no --ovn-layout")
	_ = cmd.RegisterFlagCompletionFunc("isolation", cobra.FixedCompletions(
		[]string{"none", "namespace"}, cobra.ShellCompDirectiveNoFileComp))
}

// Settings returns the settings of the mapping.
func (f *Mapping) Settings() (mapping.Settings, error) {
	s := mapping.Settings{Isolation: mapping.Isolation(f.isolation), DHCPLeaseTime: f.leaseTime}
	if s.Isolation != mapping.IsolationNone && s.Isolation != mapping.IsolationNamespace {
		return s, fmt.Errorf("--isolation %q: want none or namespace", f.isolation)
	}
	for _, text := range f.physical {
		p, err := physical.Parse(text)
		if err == nil {
			err = s.Physical.Add(p)
		}
		if err != nil {
			return s, fmt.Errorf("--physical-network: %w", err)
		}
	}
	return s, nil
}
