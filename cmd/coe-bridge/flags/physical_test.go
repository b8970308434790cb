package flags

import (
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// A physical network is refused if its subnet has another use, or if the backend attaches none.
func TestPhysicalNetwork(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"its own pool":             {[]string{"--pool", "plant=10.50.0.0/24,from=10.50.0.64", "--pool", "10.11.0.0/16"}, ""},
		"its own pool on a node":   {[]string{"--pool", "192.168.33.12:plant=10.50.0.0/24,from=10.50.0.64"}, ""},
		"a pool of the others":     {[]string{"--pool", "10.50.0.0/16"}, `pool "default", subnet 10.50.0.0/16: overlaps 10.50.0.0/24, the range of physical network cable, VLAN 100 of namespace plant`},
		"a pool of a node":         {[]string{"--pool", "192.168.33.12=10.50.0.0/26"}, `pool "192.168.33.12", subnet 10.50.0.0/26: overlaps 10.50.0.0/24`},
		"the network of the nodes": {[]string{"--node-network", "10.50.0.0/16"}, "overlaps"},
		"cluster addresses":        {[]string{"--service-network", "10.50.0.0/25"}, "overlaps"},
		"layout node":              {[]string{"--ovn-layout", "node"}, ""},
		"ACLs between namespaces":  {[]string{"--ovn-layout", "node", "--isolation", "namespace"}, "with --isolation namespace it needs --ovn-layout elan"},
		"routers of namespaces":    {[]string{"--isolation", "namespace"}, ""},
		"the pool of all": {
			[]string{"--physical-network", "default=other,subnet=10.60.0.0/24", "--pool", "10.60.0.0/16"}, `pool "default", subnet 10.60.0.0/16: overlaps 10.60.0.0/24`,
		},
		"two of a namespace": {[]string{"--physical-network", "plant=other,subnet=10.60.0.0/24"}, "namespace plant has two physical networks"},
		"no subnet":          {[]string{"--physical-network", "lab=other"}, "name the subnet"},
	} {
		t.Run(name, func(t *testing.T) {
			var (
				mapping  Mapping
				pools    Pools
				nodes    Nodes
				backends Backends
			)
			cmd := &cobra.Command{}
			mapping.Register(cmd)
			pools.Register(cmd)
			nodes.Register(cmd)
			backends.Register(cmd)
			require.NoError(t, cmd.ParseFlags(append(c.args, "--physical-network", "plant=cable,vlan=100,subnet=10.50.0.0/24")))
			check := func() error {
				s, err := mapping.Settings()
				if err != nil {
					return err
				}
				all, err := pools.Parse()
				require.NoError(t, err)
				cfg, err := nodes.Config(all)
				require.NoError(t, err)
				if err := SetPhysical(&cfg, s.Physical, all); err != nil {
					return err
				}
				require.ErrorContains(t, backends.AttachPhysical([]string{"ovn", "odl"}, s.Isolation, s.Physical), "needs --backend ovn")
				isolation, err := backends.Isolation([]string{"ovn"}, s.Isolation)
				require.NoError(t, err)
				return backends.AttachPhysical([]string{"ovn"}, isolation, s.Physical)
			}
			if err := check(); c.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.want)
			}
		})
	}
}
