package ovn_test

import (
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/follow"
	"github.com/coe-bridge/coe-bridge/mapping/reconcile"
	"github.com/coe-bridge/coe-bridge/test/lab/ovn25"
	"github.com/coe-bridge/coe-bridge/test/lab/ovsdb"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// TestUpgradeOfOVN: pods, services and policies come and go while the members of a clustered database are upgraded one after the other
// from the OVN of Debian 12 to 25.03, and while the database is converted.
func TestUpgradeOfOVN(t *testing.T) {
	for _, c := range []struct {
		name     string
		converts int // which member to be upgraded converts the database
	}{
		// As docs/upgrade.md says.
		{"converted by the last member", 2},
		// Open vSwitch 3.5 writes no data to the log with the schema. A member of 3.1 ends then, and again until it is upgraded.
		{"converted by the first member", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := os.Getenv("PATH")
			t.Setenv("PATH", "/usr/sbin:/usr/bin:"+path) // PATH can begin with 25.03
			cluster := ovsdb.StartCluster(t)
			before := ovsdb.Schema("ovn/ovn-nb")
			newer, err := ovn25.Install(t.Context(), t.Output())
			require.NoError(t, err)
			t.Setenv("PATH", newer+":"+path)
			after := ovsdb.Schema("ovn/ovn-nb")

			north, _, err := ovn.Config{Endpoints: cluster.Endpoints(), TLS: cluster.TLS()}.Servers()
			require.NoError(t, err)
			ports := follow.NewPorts(north, nil, func(string) {}, nil, slog.New(slog.DiscardHandler))
			var following sync.WaitGroup
			following.Go(func() { ports.Run(t.Context()) })
			t.Cleanup(following.Wait)
			b := noted{clustered(t, cluster, cluster.Endpoints()), make(chan time.Time, 1000)}
			churn := start(t, b, 25, reconcile.Config{Timeout: never})
			leader := cluster.Leader(t)
			members := append([]*ovsdb.Member{cluster.Follower(t)}, leader)
			for _, m := range cluster.Members {
				if m != members[0] && m != leader {
					members = append(members, m)
				}
			}
			for n, m := range members[:c.converts+1] {
				churn.withstand(t, cluster, b, trial{[]string{"follower", "leader", "second follower"}[n] + " upgraded", func() { m.Kill(t) }, func() { m.Restart(t) }, before})
			}
			churn.withstand(t, cluster, b, trial{"converted", func() {
				converted := make(chan error, 1)
				go func() { converted <- members[c.converts].Convert(after) }()
				for _, m := range members[c.converts+1:] {
					m.AwaitEnd(t)
					m.Restart(t)
				}
				require.NoError(t, <-converted)
			}, func() {}, after})
			names, err := cluster.Leader(t).TryNBCtl("--bare", "--columns=name", "find", "Logical_Switch_Port", `type=""`)
			require.NoError(t, err)
			require.Eventually(t, func() bool {
				has, _, _, _ := ports.Count(func(string) bool { return true })
				return has == len(strings.Fields(names))
			}, patience.Patience, 10*time.Millisecond, "the ports are followed after the conversion")
		})
	}
}
