package nic_test

import (
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// bootsAgain is as if the node had booted: the kernel has lost the bridge, addresses, routes and rules. The database of Open vSwitch
// and the records are as they were. The network manager configures the NIC after it was released.
func (n *node) bootsAgain(boot string) {
	n.t.Helper()
	require.NoError(n.t, n.host.VSwitchd.Kill())
	_ = exec.CommandContext(n.t.Context(), "ip", "-n", n.ns, "link", "del", theBridge).Run() // it does not exist before some steps
	n.lines(`
		link set nic0 down
		address flush dev nic0
		-6 address flush dev nic0
		route flush dev nic0`)
	n.command("ip", "netns", "exec", n.ns, "nft", "flush", "ruleset")
	n.reboot(boot)
	n.Mover = n.mover()
	_, err := n.Release(n.t.Context())
	require.NoError(n.t, err)
	n.lines("link set nic0 up")
	require.NoError(n.t, n.host.VSwitchd.Start(n.t.Context()))
	_, _ = n.Settle(n.t.Context()) // the agent starts before the NIC has addresses, and tries again if this fails
	n.lines(`
		address add 10.9.0.1/24 dev nic0
		-6 address add fd09::1/64 dev nic0
		route add default via 10.9.0.254 dev nic0`)
	n.usable()
}

// TestBootInTheMiddle: the node boots after each step of a move. The agent then finishes the move, the node answers, and the NIC can
// leave.
func TestBootInTheMiddle(t *testing.T) {
	t.Parallel()
	for way, name := range map[string]string{"join": theNIC, "leave": theBridge} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.simple()
			step := 1
			for ; ; step++ {
				if way == "leave" {
					n.join()
				}
				if !n.killed(way, name, step) {
					break
				}
				n.bootsAgain(way + strconv.Itoa(step))
				_, err := n.Settle(t.Context())
				require.NoError(t, err, step)
				bridges, err := n.host.VSCtl(t.Context(), "list-br")
				require.NoError(t, err)
				require.Equal(t, way == "join", strings.Contains(bridges, theBridge), "after step %d: %s", step, bridges)
				c := n.connect("10.9.0.1")
				c.works(t)
				n.leave()
				c.works(t)
				n.left(n.has(theNIC))
			}
			require.Greater(t, step, 5)
		})
	}
}
