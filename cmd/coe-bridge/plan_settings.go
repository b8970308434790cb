package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/coe-bridge/coe-bridge/dhcppool"
	"github.com/coe-bridge/coe-bridge/mapping"
)

// poolFlags are pools that are there from the start.
type poolFlags []string

func (f *poolFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar((*[]string)(f), "pool", nil,
		"addresses for pods, [NETWORK=]SUBNET[,gateway=ADDR][,from=ADDR][,to=ADDR][,dns=ADDR]; may be given again")
}

func (f poolFlags) pools() ([]dhcppool.Pool, error) {
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

// settingsFlags are the flags of the mapping.
type settingsFlags struct {
	isolation string
	leaseTime uint32
}

func (f *settingsFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.isolation, "isolation", "none", "none: every pod reaches every pod; namespace: only those of its namespace")
	cmd.Flags().Uint32Var(&f.leaseTime, "dhcp-lease-time", 3600, "seconds for which a pod that asks by DHCP has its address")
	_ = cmd.RegisterFlagCompletionFunc("isolation", cobra.FixedCompletions(
		[]string{"none", "namespace"}, cobra.ShellCompDirectiveNoFileComp))
}

func (f *settingsFlags) settings() (mapping.Settings, error) {
	s := mapping.Settings{Isolation: mapping.Isolation(f.isolation), DHCPLeaseTime: f.leaseTime}
	if s.Isolation != mapping.IsolationNone && s.Isolation != mapping.IsolationNamespace {
		return s, fmt.Errorf("--isolation %q: want none or namespace", f.isolation)
	}
	return s, nil
}
