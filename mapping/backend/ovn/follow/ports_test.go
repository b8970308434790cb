package follow_test

import (
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/follow"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
	"github.com/coe-bridge/coe-bridge/test/lab/ovsdb"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// followed is a Ports that runs, with the ports that it has reported.
type followed struct {
	*follow.Ports
	mu        sync.Mutex
	installed []string
	chassis   map[string]string
}

// start follows the ports of the databases of a configuration until the test ends.
func start(t *testing.T, cfg ovn.Config) *followed {
	t.Helper()
	north, south, err := cfg.Servers()
	require.NoError(t, err)
	w := &followed{}
	w.Ports = follow.NewPorts(north, south, func(port string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.installed = append(w.installed, port)
	}, func(hosts map[string]string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.chassis = hosts
	}, slog.New(slog.DiscardHandler))
	var running sync.WaitGroup
	running.Go(func() { w.Run(t.Context()) })
	t.Cleanup(running.Wait)
	return w
}

func (w *followed) reported() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.installed)
}

// awaitChassis waits until OVN has these chassis.
func (w *followed) awaitChassis(t *testing.T, want map[string]string) {
	t.Helper()
	require.Eventually(t, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return maps.Equal(w.chassis, want)
	}, patience.Patience, 10*time.Millisecond)
}

// await waits until the times of a port are as they should be, while all databases answer.
func (w *followed) await(t *testing.T, port string, is func(follow.Times) bool) (times follow.Times) {
	t.Helper()
	var (
		known bool
		err   error
	)
	require.Eventually(t, func() bool {
		times, known, err = w.Port(port)
		return known && err == nil && is(times)
	}, patience.Patience, 10*time.Millisecond, "%s: %+v %v", port, &times, &err)
	return times
}

// add adds a port to the switch of a lab.
func add(t *testing.T, lab *ovnhost.Lab, port string) {
	t.Helper()
	_, err := lab.NBCtl(t.Context(), "--may-exist", "ls-add", "switch", "--", "lsp-add", "switch", port)
	require.NoError(t, err)
}

// TestPorts follows a pod on its way through a real OVN, with and without the southbound database.
func TestPorts(t *testing.T) {
	lab := ovnhost.ForTest(t, "host1")
	cfg := ovn.Config{Endpoints: lab.NB.Remote, Southbound: lab.SB.Remote, Probe: 50 * time.Millisecond}
	whole := start(t, cfg)
	northOnly := start(t, ovn.Config{Endpoints: lab.NB.Remote})

	const port = "a:block"
	whole.await(t, port, func(times follow.Times) bool { return times == follow.Times{} })

	begun := time.Now().Add(-time.Millisecond)
	add(t, lab, port)
	times := whole.await(t, port, func(times follow.Times) bool { return times.Translated != 0 })
	require.Zero(t, times.Bound)
	require.Zero(t, times.Installed)

	plugged := ovnhost.Pod{
		Host: "host1", Name: port, UID: "uid", PortName: "tap0", MAC: net.HardwareAddr{0x0a, 0x58, 0, 0, 1, 0},
		Address: netip.MustParsePrefix("10.1.1.2/29"), Gateway: netip.MustParseAddr("10.1.1.1"),
	}
	require.NoError(t, lab.Plug(t.Context(), plugged))
	times = whole.await(t, port, func(times follow.Times) bool { return times.Installed != 0 })
	ordered := []time.Time{begun, times.Written.Time(), times.Translated.Time(), times.Bound.Time(), times.Installed.Time(), time.Now()}
	require.True(t, slices.IsSortedFunc(ordered, time.Time.Compare), "%v", ordered)
	times = northOnly.await(t, port, func(times follow.Times) bool { return times.Installed != 0 })
	require.Zero(t, times.Translated)
	require.Zero(t, times.Bound)
	require.Positive(t, times.Written)
	for _, w := range []*followed{whole, northOnly} {
		require.Eventually(t, func() bool { return slices.Equal([]string{port}, w.reported()) }, patience.Patience, 10*time.Millisecond)
	}
	translated, bound, installed, known := whole.Count(func(name string) bool { return name == port })
	require.True(t, known)
	require.Equal(t, []int{1, 1, 1}, []int{translated, bound, installed})

	t.Run("a later one does not know the times", func(t *testing.T) {
		later := start(t, cfg) // it reads one database before the other
		times := later.await(t, port, func(times follow.Times) bool { return times.Written != 0 && times.Bound != 0 && times.Installed != 0 })
		require.Equal(t, follow.Times{Written: follow.Past, Translated: follow.Past, Bound: follow.Past, Installed: follow.Past}, times)
		require.True(t, times.Bound.Time().IsZero())
	})
	t.Run("times stay while a database is away", func(t *testing.T) {
		before := whole.await(t, port, func(times follow.Times) bool { return times.Installed != 0 })
		require.NoError(t, lab.SB.Kill())
		var err error
		require.Eventually(t, func() bool {
			_, _, err = whole.Port(port)
			return err != nil
		}, patience.Patience, 10*time.Millisecond)
		require.ErrorContains(t, err, "OVN_Southbound does not answer")
		after, known, _ := whole.Port(port)
		require.True(t, known)
		require.Equal(t, before, after)
		require.NoError(t, lab.SB.Start(t.Context()))
		require.Equal(t, before, whole.await(t, port, func(follow.Times) bool { return true }))
	})
	t.Run("a pod that is unplugged and plugged again", func(t *testing.T) {
		require.NoError(t, lab.Unplug(t.Context(), plugged))
		unplugged := whole.await(t, port, func(times follow.Times) bool { return times.Bound == 0 && times.Installed == 0 })
		require.NoError(t, lab.Plug(t.Context(), plugged))
		again := whole.await(t, port, func(times follow.Times) bool { return times.Installed != 0 })
		require.Equal(t, unplugged.Translated, again.Translated)
		require.Positive(t, again.Bound)
		require.Equal(t, []string{port}, whole.reported(), "the pod is not new")
	})
	t.Run("a deleted pod", func(t *testing.T) {
		_, err := lab.NBCtl(t.Context(), "lsp-del", port)
		require.NoError(t, err)
		whole.await(t, port, func(times follow.Times) bool { return times == follow.Times{} })
	})
}

// TestChassisOfOVN: the chassis of a real OVN are reported with the names of their hosts, when they change, and after the database was away.
func TestChassisOfOVN(t *testing.T) {
	t.Parallel()
	lab := ovnhost.ForTest(t, "host1")
	w := start(t, ovn.Config{Endpoints: lab.NB.Remote, Southbound: lab.SB.Remote, Probe: 50 * time.Millisecond})
	w.awaitChassis(t, map[string]string{"host1": "host1"})
	_, err := lab.SBCtl(t.Context(), "chassis-add", "other", "geneve", "172.31.99.200")
	require.NoError(t, err)
	w.awaitChassis(t, map[string]string{"host1": "host1", "other": ""})
	require.NoError(t, lab.SB.Kill())
	require.NoError(t, lab.SB.Start(t.Context()))
	_, err = lab.SBCtl(t.Context(), "chassis-del", "other")
	require.NoError(t, err)
	w.awaitChassis(t, map[string]string{"host1": "host1"})
}

// TestNorthdRests: writes wait for an ovn-northd that is slow, and not for one that stands still.
func TestNorthdRests(t *testing.T) {
	lab := ovnhost.ForTest(t)
	ports := start(t, ovn.Config{Endpoints: lab.NB.Remote})
	ports.await(t, "first", func(follow.Times) bool { return true })
	require.Zero(t, ports.Northd())

	const slow = 100 * time.Millisecond
	come := func(port string) { // ovn-northd stands still until the port is seen: the server can notify it together with its translation
		t.Helper()
		require.NoError(t, lab.Northd.Stop())
		add(t, lab, port)
		written := ports.await(t, port, func(times follow.Times) bool { return times.Written > 0 }).Written.Time()
		require.Eventually(t, func() bool { return time.Since(written) > slow }, patience.Patience, time.Millisecond)
	}
	come("first")
	require.Positive(t, ports.Northd())
	require.Zero(t, ports.Rest(), "one time is not enough")
	require.NoError(t, lab.Northd.Cont())
	for n := 0; ports.Rest() < slow && n < 50; n++ { // on a busy machine ovn-northd can need longer than rests help
		port := fmt.Sprintf("further-%d", n)
		come(port)
		require.NoError(t, lab.Northd.Cont())
		require.Eventually(t, func() bool {
			out, err := lab.NBCtl(t.Context(), "--bare", "--columns=up", "find", "Logical_Switch_Port", "name="+port)
			return err == nil && strings.TrimSpace(out) == "false" // ovn-northd has translated it
		}, patience.Patience, 10*time.Millisecond)
	}
	require.GreaterOrEqual(t, ports.Rest(), slow)

	come("last")
	require.Eventually(t, func() bool { return ports.Rest() == 0 }, patience.Patience, 10*time.Millisecond)
	require.NoError(t, lab.Northd.Cont())
}

// TestHungSouthbound: a server of the southbound database that is frozen is passed over, when it is the first endpoint and when it is in use.
func TestHungSouthbound(t *testing.T) {
	t.Parallel()
	north, one, two := ovsdb.Start(t), ovsdb.StartSouthbound(t), ovsdb.StartSouthbound(t)
	names := map[*ovsdb.Server]string{one: "one", two: "two"}
	for s, name := range names {
		out, err := exec.CommandContext(t.Context(), "ovn-sbctl", "--db="+s.Endpoint(), "chassis-add", name, "geneve", "127.0.0.1").CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	one.Stop(t)
	const never = time.Hour // only the probes find the server
	cfg := ovn.Config{
		Endpoints: north.Endpoint(), Southbound: one.Endpoint() + "," + two.Endpoint(),
		Timeout: never, ReadTimeout: never, ConnectTimeout: 15 * time.Second, // a busy machine takes longer than the default to connect
	}
	hangs := time.Now()
	ports := start(t, cfg)
	for _, next := range []*ovsdb.Server{two, one} {
		require.Eventually(t, func() bool {
			ports.mu.Lock()
			defer ports.mu.Unlock()
			_, _, err := ports.Port("a pod")
			return err == nil && maps.Equal(ports.chassis, map[string]string{names[next]: ""})
		}, patience.Patience, time.Millisecond)
		t.Logf("passed over after %v", time.Since(hangs).Round(time.Millisecond))
		if next == two {
			one.Continue(t)
			two.Stop(t)
			hangs = time.Now()
		}
	}
	two.Continue(t)
}
