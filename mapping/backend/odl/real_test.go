package odl_test

import (
	"context"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/backendtest"
	"github.com/coe-bridge/coe-bridge/mapping/backend/odl"
	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/controller"
	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/odltest"
	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/shards"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	realodl "github.com/coe-bridge/coe-bridge/test/lab/odl"
)

// TestRealOpenDaylight runs the conformance suite on real controllers, in all of their
// dialects, and further tests.
func TestRealOpenDaylight(t *testing.T) {
	for _, release := range realodl.Releases() {
		t.Run(string(release), func(t *testing.T) {
			c := realodl.ForTest(t, release, "host1")
			t.Run("plugged in", func(t *testing.T) { realPlugged(t, c) })
			t.Run("policies", func(t *testing.T) { realPolicies(t, c) })
			if release == realodl.Neon {
				t.Run("an access list is deleted", func(t *testing.T) { realDeletedList(t, c) })
			}
			t.Run("policies of IPv6", func(t *testing.T) { realIPv6Policies(t, c) })
			for _, dialect := range []string{"", "rfc8040-" + string(release)} {
				t.Run("dialect "+dialect, func(t *testing.T) { onReal(t, c, dialect) })
				t.Run("others in dialect "+dialect, func(t *testing.T) { realOthers(t, c, dialect) })
				t.Run("shards in dialect "+dialect, func(t *testing.T) { realShards(t, c, dialect) })
			}
			t.Run("external writer", func(t *testing.T) { realExternalWriter(t, c) })
			t.Run("restarts", func(t *testing.T) { realRestarts(t, c, release) })
		})
	}
}

func realConfig(t *testing.T, c *realodl.Controller, dialect string) odl.Config {
	return odl.Config{
		URLs: c.URL, Dialect: dialect, AuthFile: passwordFile(t, realodl.User+":"+realodl.Password),
		Timeout: 30 * time.Second, Poll: time.Second, Probe: 100 * time.Millisecond,
	}
}

// long reports whether the tests may take half an hour: the whole suite in every dialect, and
// every kind of restart on every release. Else they take a few minutes.
func long() bool { return os.Getenv("COE_BRIDGE_TEST_ODL_LONG") != "" }

// onReal runs the suite. Each backend starts on a controller without our entries. For dialects
// that are not preferred it runs one walk only, unless long.
func onReal(t *testing.T, c *realodl.Controller, dialect string) {
	fresh := func(t *testing.T) *odl.Backend {
		requireIdle(t, c)
		b := open(t, realConfig(t, c, dialect))
		write(t, b, netvirt.Model{})
		return b
	}
	create := func(t *testing.T) backendtest.Backend { return fresh(t) }
	switch {
	case long():
		backendtest.Run(t, create)
	case dialect == "":
		backendtest.RunWalks(t, 1, create)
	default:
		t.Run("short walk", func(t *testing.T) { shortWalk(t, fresh(t)) })
	}
	t.Run("many", func(t *testing.T) {
		b, want := fresh(t), odltest.PodsOf()
		for i := range manyPods {
			odltest.PodOn(want, "default", podName(i), 0, i)
		}
		begun := time.Now()
		write(t, b, want)
		t.Logf("%d pods written and read in %s", manyPods, time.Since(begun))
		write(t, b, netvirt.Model{})
	})
}

const manyPods = 500

// shortWalk writes a sequence of random models.
func shortWalk(t *testing.T, b *odl.Backend) {
	w := backendtest.NewWorld(1)
	for range 12 {
		w.Step()
		write(t, b, w.Model().Select(b.Kinds()))
	}
	write(t, b, netvirt.Model{})
}

// realExternalWriter: our entries that an external writer deletes or changes are restored.
func realExternalWriter(t *testing.T, c *realodl.Controller) {
	requireIdle(t, c)
	b := open(t, realConfig(t, c, ""))
	want := odltest.PodsOf("a", "b")
	write(t, b, want)
	changed := watch(t, b)
	for _, act := range []func(){
		func() { takeAway(t, c, placed{top: "ietf-interfaces:interfaces", list: "interface", key: "a:pod-1"}) },
		func() { takeAway(t, c, placed{top: "l3vpn:vpn-interfaces", list: "vpn-interface", key: "b:pod-1"}) },
		func() {
			place := placed{top: "elan:elan-interfaces", list: "elan-interface", key: "a:pod-1"}
			e := realEntry(t, c, place.top, place.list, place.key)
			place.value = with(e, "elan-instance-name", "192.168.33.10:b")
			realPut(t, c, place)
		},
	} {
		act()
		told(t, changed)
		heal(t, b, want)
		agree(t, b, want)
	}
	write(t, b, netvirt.Model{})
}

// realRestarts: if a controller is killed and started again, with or without its datastore,
// the backend notices it and writes the model.
func realRestarts(t *testing.T, c *realodl.Controller, release realodl.Release) {
	b := open(t, realConfig(t, c, ""))
	want := odltest.PodsOf("a", "b")
	write(t, b, want)
	changed := watch(t, b)
	for _, again := range []struct {
		start func(context.Context) error
		on    realodl.Release // unless long
	}{{c.Restart, realodl.Oxygen}, {c.Wipe, realodl.Neon}} {
		if release != again.on && !long() {
			continue
		}
		require.NoError(t, again.start(t.Context()))
		told(t, changed)
		heal(t, b, want)
		agree(t, b, want)
	}
}

// realShards: a controller says of its shards what package shards reads, and leads one if the RPC of that package asks for it.
func realShards(t *testing.T, c *realodl.Controller, dialect string) {
	client, err := controller.New(controller.Config{
		AuthFile: passwordFile(t, realodl.User+":"+realodl.Password), Dialect: dialect,
		Timeout: 30 * time.Second, ReadTimeout: 30 * time.Second, ConnectTimeout: 30 * time.Second, Parallel: 1, AnswerBytes: 1 << 20,
	}, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(client.CloseIdle)
	all, err := shards.Read(t.Context(), client, c.URL)
	require.NoError(t, err)
	require.Equal(t, shards.Leads, all["member-1-shard-default-config"].Role)
	require.Equal(t, "member-1-shard-default-config", all["member-1-shard-default-config"].Leader)
	require.Positive(t, all["member-1-shard-default-config"].Committed)
	s, err := client.Open(t.Context(), c.URL)
	require.NoError(t, err)
	require.NoError(t, shards.MakeLeader(t.Context(), s, c.URL, "member-1-shard-default-config"))
	require.Error(t, shards.MakeLeader(t.Context(), s, c.URL, "member-1-shard-none-config"))
}
