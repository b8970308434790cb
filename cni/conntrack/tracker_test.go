package conntrack

import (
	"context"
	"net"
	"os/exec"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/coe-bridge/coe-bridge/cni/links"
	"github.com/coe-bridge/coe-bridge/test/lab/namespace"
)

// tracked is a network namespace with connections of UDP to some ports of the loopback address. Those to port 7002 are in a
// zone.
func tracked(t *testing.T, ports ...string) netns.NsHandle {
	t.Helper()
	ns := namespace.New(t)
	require.NoError(t, links.Inside(ns, func() error {
		return exec.CommandContext(t.Context(), "sh", "-ec", "ip link set lo up; nft add table ip z; "+
			"nft add chain ip z c '{ type filter hook output priority raw; }'; nft add rule ip z c udp dport 7002 ct zone set 5; "+
			"nft add chain ip z d '{ type filter hook output priority 0; }'; nft add rule ip z d ct state new counter").Run()
	}))
	for _, port := range ports {
		require.NoError(t, links.Inside(ns, func() error {
			conn, err := new(net.Dialer).DialContext(context.Background(), "udp", "127.0.0.1:"+port)
			if err == nil {
				_, err = conn.Write([]byte("?"))
				_ = conn.Close()
			}
			return err
		}))
	}
	return ns
}

// Kernels before 6.8 do not select connections by the zone, and kernels before 5.8 do not select at all. The connections that
// are found, and those that are forgotten, are the same.
func TestKernelsThatDoNotSelect(t *testing.T) {
	withoutZone := func(of Tuple, family int) []nl.NetlinkRequestData {
		all := of.request(family)
		return all[:len(all)-1]
	}
	withoutFilter := func(Tuple, int) []nl.NetlinkRequestData { return nil }
	wanted := []Tuple{{Protocol: unix.IPPROTO_UDP, ToPort: 7001}, {Protocol: unix.IPPROTO_UDP, ToPort: 7002}, {Protocol: unix.IPPROTO_UDP, ToPort: 7003}}
	for name, request := range map[string]func(Tuple, int) []nl.NetlinkRequestData{
		"6.8": Tuple.request, "before 6.8": withoutZone, "before 5.8": withoutFilter,
	} {
		t.Run(name, func(t *testing.T) {
			k, err := open(tracked(t, "7001", "7002", "7003", "7004"), unix.AF_INET)
			require.NoError(t, err)
			defer k.close()
			k.request = request
			named := func() (ports []uint16) {
				all, err := k.list(wanted)
				require.NoError(t, err)
				for i := range all {
					require.Zero(t, all[i].zone)
					if slices.ContainsFunc(wanted, func(of Tuple) bool { return of.names(&all[i]) }) {
						ports = append(ports, all[i].Sent.To.Port())
						require.NoError(t, k.remove(&all[i]))
					}
				}
				slices.Sort(ports)
				return ports
			}
			require.Equal(t, []uint16{7001, 7003}, named())
			require.Empty(t, named(), "they are forgotten")
			k.request = withoutFilter
			left, err := k.list([]Tuple{{}})
			require.NoError(t, err)
			require.Len(t, left, 1, "one of no port that is named, beside that in the zone")
			require.Equal(t, uint16(7004), left[0].Sent.To.Port())
		})
	}
}
