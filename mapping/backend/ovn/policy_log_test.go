package ovn_test

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// loggedModel returns liveModel with one isolated pod: everybody may connect to its port 8080, and by other
// rules to some ports of UDP. It may connect to nobody.
func loggedModel(drops, all bool) netvirt.Model {
	m := liveModel(false)
	m.Add(
		netvirt.ACL{Name: "a:isolated:ingress", Namespace: "a", Isolates: netvirt.Ingress, Logs: drops},
		netvirt.ACL{Name: "a:isolated:egress", Namespace: "a", Isolates: netvirt.Egress, Logs: drops},
		netvirt.ACL{Name: "a:pods", Namespace: "a", Logs: all},
		netvirt.ACE{
			ACL: "a:pods", Namespace: "a", Name: "ingress:web:0:ipv4", Direction: netvirt.Ingress, Family: netvirt.IPv4, Ports: "tcp:8080",
		},
		netvirt.InterfaceACL{
			Interface: livePods[aBlock].iface(), Namespace: "a",
			SecurityGroups: netvirt.NewNameList("a:isolated:ingress", "a:isolated:egress", "a:pods"),
		},
	)
	for _, port := range loggedUDP {
		m.Add(netvirt.ACE{
			ACL: "a:pods", Namespace: "a", Name: fmt.Sprintf("ingress:udp-%d:0:ipv4", port), Direction: netvirt.Ingress, Family: netvirt.IPv4,
			Ports: netvirt.PortList(fmt.Sprintf("udp:%d", port)),
		})
	}
	return m
}

// loggedUDP are the ports of UDP that rules of loggedModel allow.
var loggedUDP = []uint16{9001, 9002, 9003, 9004, 9005}

// TestPolicyLog: on a real OVN, the log of ovn-controller names what dropped or allowed a packet. Its
// rate is limited for all ACLs of a namespace with one direction and verdict.
func TestPolicyLog(t *testing.T) {
	lab := ovnhost.ForTest(t, "host1")
	b := withLayout(t, lab, ovn.LayoutNode)
	apply := func(drops, all bool) {
		write(t, b, withGateways(loggedModel(drops, all)))
		require.NoError(t, lab.Sync(t.Context()))
	}
	const inside, outside = aBlock, bBlock
	apply(false, false)
	for _, n := range []int{inside, outside} {
		livePods[n].plug(t, lab, n)
		require.NoError(t, lab.Serve(livePods[n].iface(), open8080, http.HandlerFunc(echo)))
	}
	// The cases that are dropped come after one that is allowed, which resolves the addresses.
	probe := func() {
		for _, c := range []connection{{outside, inside, open8080}, {outside, inside, closed8081}, {inside, outside, open8080}} {
			require.Empty(t, judge(t.Context(), lab, c, c == connection{outside, inside, open8080}))
		}
	}
	probe()
	require.Empty(t, logged(t, lab, ""))

	apply(true, false)
	probe()
	in, out := `name="a:isolated:ingress", verdict=drop, severity=warning, direction=to-lport: tcp,`,
		`name="a:isolated:egress", verdict=drop, severity=warning, direction=from-lport: tcp,`
	require.Eventually(t, func() bool { return len(logged(t, lab, in)) > 0 && len(logged(t, lab, out)) > 0 }, patience.Patience, 50*time.Millisecond)
	require.Empty(t, logged(t, lab, "verdict=allow"))

	apply(true, true)
	probe()
	require.Eventually(t, func() bool {
		return len(logged(t, lab, `name="a:ingress:web:0:ipv4", verdict=allow, severity=info, direction=to-lport: tcp,`)) > 0
	}, patience.Patience, 50*time.Millisecond)

	// A node logs at most 100 packets in a second, however many it drops.
	begin, drops := time.Now(), 0
	most := func() int { return 100 * int(time.Since(begin).Seconds()+2) }
	require.Eventually(t, func() bool {
		flood(t, lab, livePods[outside], livePods[inside], open8080, 5000)
		drops = dropped(t, lab, "a:isolated:ingress")
		return drops > 3*most()
	}, 2*time.Minute, 10*time.Millisecond)
	probe()
	lines := 0
	require.Eventually(t, func() bool {
		lines = len(logged(t, lab, strings.TrimSuffix(in, "tcp,")+"udp,"))
		return lines > 50
	}, patience.Patience, 50*time.Millisecond)
	require.LessOrEqual(t, lines, most())
	t.Logf("%d packets dropped in %s, %d logged", drops, time.Since(begin), lines)

	// The rules of a namespace share the limit, so that more policies do not log more.
	begin = time.Now()
	for range 4 {
		for _, port := range loggedUDP {
			flood(t, lab, livePods[outside], livePods[inside], port, 5000)
		}
	}

	apply(false, false)
	before, since := -1, time.Now() // ovn-controller writes what it has in its queue
	require.Eventually(t, func() bool {
		if n := len(logged(t, lab, "")); n != before {
			before, since = n, time.Now()
		}
		return time.Since(since) > 3*time.Second
	}, 2*time.Minute, 50*time.Millisecond)
	probe()
	require.Len(t, logged(t, lab, ""), before)
	lines = len(logged(t, lab, `name="a:ingress:udp-`))
	require.LessOrEqual(t, lines, 200*int(since.Sub(begin).Seconds()+3), "until the last line; a changed meter begins with a full bucket")
	require.Greater(t, lines, 50)
	t.Logf("%d packets allowed in %s, %d logged", 20*5000, time.Since(begin), lines)
	for _, table := range []string{"Meter", "Meter_Band"} {
		rows, err := lab.NBCtl(t.Context(), "--bare", "--columns=_uuid", "list", table)
		require.NoError(t, err)
		require.Empty(t, strings.TrimSpace(rows), table)
	}
}

// logged returns the lines about ACLs in the log of host1's ovn-controller that contain a text.
func logged(t *testing.T, lab *ovnhost.Lab, text string) (lines []string) {
	t.Helper()
	log, err := os.ReadFile(filepath.Join(lab.Logs(), "host1-controller.log"))
	require.NoError(t, err)
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, "|acl_log") && strings.Contains(line, text) {
			lines = append(lines, line)
		}
	}
	return lines
}

// dropped returns how many packets the switch of host1 has dropped by an ACL, as docs/policies.md tells
// operators to count them.
func dropped(t *testing.T, lab *ovnhost.Lab, acl string) (sum int) {
	t.Helper()
	uuid, err := lab.NBCtl(t.Context(), "--bare", "--columns=_uuid", "find", "ACL", "priority=998", fmt.Sprintf("external_ids:coe-bridge/name=%q", acl))
	require.NoError(t, err)
	flows, err := lab.SBCtl(t.Context(), "--bare", "--columns=_uuid", "find", "Logical_Flow", "external_ids:stage-hint="+uuid[:8])
	require.NoError(t, err)
	for _, flow := range strings.Fields(flows) {
		bridge := filepath.Join(lab.Host("host1").Dir, "br-int.mgmt")
		out, err := exec.CommandContext(t.Context(), "ovs-ofctl", "dump-flows", "unix:"+bridge, "cookie=0x"+flow[:8]+"/-1").Output()
		require.NoError(t, err)
		for _, count := range regexp.MustCompile(`n_packets=(\d+)`).FindAllStringSubmatch(string(out), -1) {
			n, err := strconv.Atoi(count[1])
			require.NoError(t, err)
			sum += n
		}
	}
	return sum
}

// flood sends datagrams from one pod to a port of another.
func flood(t *testing.T, lab *ovnhost.Lab, from, to livePod, port uint16, packets int) {
	t.Helper()
	at := net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(to.address), port))
	require.NoError(t, lab.In(from.iface(), func() error {
		conn, err := net.DialUDP("udp", nil, at)
		if err != nil {
			return err
		}
		for range packets {
			if _, err := conn.Write([]byte("x")); err != nil && !errors.Is(err, unix.ECONNREFUSED) {
				return err
			}
		}
		return conn.Close()
	}))
}
