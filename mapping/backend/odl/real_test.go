package odl_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/backendtest"
	"github.com/coe-bridge/coe-bridge/mapping/backend/odl"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	realodl "github.com/coe-bridge/coe-bridge/test/odl"
)

// TestRealController is the conformance suite on real controllers, in all of their dialects,
// and what is special to them.
func TestRealController(t *testing.T) {
	for _, release := range realodl.Releases() {
		t.Run(string(release), func(t *testing.T) {
			c := realodl.ForTest(t, release, "host1")
			for _, dialect := range []string{"", "rfc8040-" + string(release)} {
				t.Run("dialect "+dialect, func(t *testing.T) { onReal(t, c, dialect) })
				t.Run("others in dialect "+dialect, func(t *testing.T) { realOthers(t, c, dialect) })
			}
			t.Run("another hand", func(t *testing.T) { realAnotherHand(t, c) })
			t.Run("plugged in", func(t *testing.T) { realPlugged(t, c) })
			t.Run("restarts", func(t *testing.T) { realRestarts(t, c) })
		})
	}
}

func realConfig(t *testing.T, c *realodl.Controller, dialect string) odl.Config {
	return odl.Config{
		URLs: c.URL, Dialect: dialect, AuthFile: passwordFile(t, realodl.User+":"+realodl.Password),
		Timeout: 30 * time.Second, Poll: time.Second, Probe: 100 * time.Millisecond,
	}
}

// onReal runs the suite with backends that each find the controller without what is ours.
func onReal(t *testing.T, c *realodl.Controller, dialect string) {
	backendtest.Run(t, func(t *testing.T) backendtest.Backend {
		b := open(t, realConfig(t, c, dialect))
		write(t, b, netvirt.Model{})
		return b
	})
	t.Run("many", func(t *testing.T) {
		b := open(t, realConfig(t, c, dialect))
		want := podsOf()
		for i := range 2000 {
			podOn(want, "default", podName(i), 0, i)
		}
		begun := time.Now()
		write(t, b, want)
		t.Logf("2,000 pods written and read in %s", time.Since(begun))
		begun = time.Now()
		agree(t, b, want)
		t.Logf("2,000 pods read in %s", time.Since(begun))
		write(t, b, netvirt.Model{})
	})
}

// realAnotherHand: what another hand deletes or changes of ours is noticed, and put back.
func realAnotherHand(t *testing.T, c *realodl.Controller) {
	b := open(t, realConfig(t, c, ""))
	want := podsOf("a", "b")
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

// realRestarts: a controller that is killed and started again, with its datastore and without,
// is noticed, and made to agree.
func realRestarts(t *testing.T, c *realodl.Controller) {
	b := open(t, realConfig(t, c, ""))
	want := podsOf("a", "b")
	write(t, b, want)
	changed := watch(t, b)
	for _, again := range []func() error{
		func() error { return c.Restart(t.Context()) },
		func() error { return c.Wipe(t.Context()) },
	} {
		require.NoError(t, again())
		told(t, changed)
		heal(t, b, want)
		agree(t, b, want)
	}
}
