package odl_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/odl"
	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/odlfake"
	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/odltest"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// TestOthersDoNotWait: a Write does not wait until Netvirt has removed the pods of a namespace. It makes all changes that do not need
// that, and names the others. They are made by a later Write.
func TestOthersDoNotWait(t *testing.T) {
	for _, release := range []odlfake.Release{odlfake.Oxygen, odlfake.Neon} {
		t.Run(release.Name, func(t *testing.T) {
			b, f := start(t, release)
			was, want := odltest.PodsOf("a", "b"), odltest.PodsOf("a", "c")
			write(t, b, was)
			var isThere atomic.Bool
			isThere.Store(true)
			f.Break(func(w http.ResponseWriter, r *http.Request) bool {
				if !isThere.Load() {
					return false
				}
				answer := ""
				switch path := r.URL.Path; {
				case strings.Contains(path, "elan-state"):
					answer = `{"elan":[{"name":"192.168.33.10:b","elan-interfaces":["b:pod-1"]}]}`
				case strings.Contains(path, "vpn-interface-op-data"):
					answer = `{"vpn-interface-op-data-entry":[{"name":"b:pod-1","vpn-instance-name":"transit:100:1"}]}`
				default:
					return false
				}
				w.Header().Set("Content-Type", "application/json")
				_, _ = fmt.Fprint(w, answer)
				return true
			})
			f.Requests()
			err := b.Write(t.Context(), netvirt.Diff(was, want))
			var deferred *netvirt.DeferredError
			require.ErrorAs(t, err, &deferred)
			elan := netvirt.ELANInstance{Name: netvirt.ELANName(netip.MustParseAddr("192.168.33.10"), "b")}.Key()
			pod := netvirt.Interface{Name: "b:pod-1"}.Key()
			require.Equal(t, was[elan], deferred.Have[elan])
			require.Equal(t, was[pod], deferred.Have[pod])
			have, err := b.Read(t.Context())
			require.NoError(t, err)
			for k, o := range want {
				require.Equal(t, o, have[k])
			}
			for k, o := range have {
				if want[k] == nil {
					require.Equal(t, deferred.Have[k], o, "what remains was named")
				}
			}

			require.ErrorAs(t, b.Write(t.Context(), netvirt.Diff(have, want)), &deferred, "it does not wait either")
			isThere.Store(false)
			require.NoError(t, b.Write(t.Context(), netvirt.Diff(have, want)))
			agree(t, b, want)
		})
	}
}

// TestNeverGone: a deletion that waits for Netvirt is made after a time, also if each write takes longer than the time after which it
// would be forgotten.
func TestNeverGone(t *testing.T) {
	t.Parallel()
	f := newFake(t, odlfake.Oxygen)
	cfg := f.config(t)
	cfg.Timeout, cfg.ReadTimeout = time.Minute, time.Minute
	b := open(t, cfg)
	was, want := odltest.PodsOf("a", "b"), odltest.PodsOf("a")
	write(t, b, was)
	f.Break(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, "elan-state") {
			return false
		}
		<-time.After(11 * time.Second)
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(w, `{"elan":[{"name":"192.168.33.10:b","elan-interfaces":["b:pod-1"]}]}`)
		return true
	})
	writes := 1
	for isDeferred(t, b.Write(t.Context(), netvirt.Diff(was, want))) {
		writes++
		require.LessOrEqual(t, writes, 3)
	}
	agree(t, b, want)
}

// TestWantedAgain: a pod whose deletion waits for Netvirt, and that is wanted again under its name, waits too. Its interface is
// deleted before it is created again. Its elan-instance stays.
func TestWantedAgain(t *testing.T) {
	b, f := start(t, odlfake.Oxygen)
	was := odltest.PodsOf("a", "b")
	write(t, b, was)
	var isThere atomic.Bool
	isThere.Store(true)
	var order []string
	f.Break(func(w http.ResponseWriter, r *http.Request) bool {
		path := r.URL.Path
		switch {
		case isThere.Load() && strings.Contains(path, "elan-state"):
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprint(w, `{"elan":[{"name":"192.168.33.10:b","elan-interfaces":["b:pod-1"]}]}`)
			return true
		case r.Method != http.MethodGet && (strings.Contains(path, "ietf-interfaces") || strings.Contains(path, "elan-instances")):
			order = append(order, r.Method)
		}
		return false
	})
	require.True(t, isDeferred(t, b.Write(t.Context(), netvirt.Diff(was, odltest.PodsOf("a")))))
	require.Empty(t, order)
	want := odltest.PodsOf("a", "b")
	for k, o := range want {
		if i, is := o.(netvirt.Interface); is && i.Name == "b:pod-1" {
			i.PodUID = "another"
			want[k] = i
		}
	}
	have, err := b.Read(t.Context())
	require.NoError(t, err)
	require.True(t, isDeferred(t, b.Write(t.Context(), netvirt.Diff(have, want))))
	require.Empty(t, order)
	isThere.Store(false)
	have, err = b.Read(t.Context())
	require.NoError(t, err)
	require.NoError(t, b.Write(t.Context(), netvirt.Diff(have, want)))
	require.Equal(t, []string{http.MethodDelete, http.MethodPost}, order)
	agree(t, b, want)
}

// TestWantedAgainFails: if the controller fails at the deletion of an interface that is wanted again, the next Write deletes it before it
// is created.
func TestWantedAgainFails(t *testing.T) {
	b, f := start(t, odlfake.Oxygen)
	was := odltest.PodsOf("a", "b")
	write(t, b, was)
	var isThere, fails atomic.Bool
	isThere.Store(true)
	fails.Store(true)
	var order []string
	f.Break(func(w http.ResponseWriter, r *http.Request) bool {
		path := r.URL.Path
		switch {
		case isThere.Load() && strings.Contains(path, "elan-state"):
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprint(w, `{"elan":[{"name":"192.168.33.10:b","elan-interfaces":["b:pod-1"]}]}`)
			return true
		case r.Method == http.MethodDelete && strings.Contains(path, "ietf-interfaces") && fails.Load():
			w.WriteHeader(http.StatusServiceUnavailable)
			return true
		case r.Method != http.MethodGet && strings.Contains(path, "ietf-interfaces"):
			order = append(order, r.Method)
		}
		return false
	})
	require.True(t, isDeferred(t, b.Write(t.Context(), netvirt.Diff(was, odltest.PodsOf("a")))))
	isThere.Store(false)
	want := odltest.PodsOf("a", "b")
	for k, o := range want {
		if i, is := o.(netvirt.Interface); is && i.Name == "b:pod-1" {
			i.PodUID = "another"
			want[k] = i
		}
	}
	again := func() error {
		have, err := b.Read(t.Context())
		require.NoError(t, err)
		return b.Write(t.Context(), netvirt.Diff(have, want))
	}
	require.Error(t, again())
	require.Empty(t, order)
	fails.Store(false)
	require.NoError(t, again())
	require.Equal(t, []string{http.MethodDelete, http.MethodPost}, order)
	agree(t, b, want)
}

// TestUsersWait: if the entry of an interface waits for its deletion, a change of an ACL that it uses is made. Write does not report that the
// controller has no such ACL. If it reports no change of the interface either, it fails, and the caller reads again.
func TestUsersWait(t *testing.T) {
	with := func(namespaces []string, isolates netvirt.Direction) netvirt.Model {
		m := odltest.PodsOf(namespaces...)
		m.Add(netvirt.ACL{Name: "b:isolated", Namespace: "b", Isolates: isolates})
		if len(namespaces) > 1 {
			m.Add(netvirt.InterfaceACL{Interface: "b:pod-1", Namespace: "b", SecurityGroups: "b:isolated"})
		}
		return m
	}
	both, one := []string{"a", "b"}, []string{"a"}
	acl, pod := netvirt.ACL{Name: "b:isolated"}.Key(), netvirt.Interface{Name: "b:pod-1"}.Key()
	begin := func(t *testing.T) (b *odl.Backend, gone func()) {
		b, f := start(t, odlfake.Oxygen)
		write(t, b, with(both, netvirt.Ingress))
		f.Break(func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.Contains(r.URL.Path, "elan-state") {
				return false
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprint(w, `{"elan":[{"name":"192.168.33.10:b","elan-interfaces":["b:pod-1"]}]}`)
			return true
		})
		return b, func() { f.Break(nil) }
	}
	t.Run("with the deletion", func(t *testing.T) {
		b, gone := begin(t)
		var deferred *netvirt.DeferredError
		require.ErrorAs(t, b.Write(t.Context(), netvirt.Diff(with(both, netvirt.Ingress), with(one, netvirt.Egress))), &deferred)
		require.Contains(t, deferred.Have, pod)
		require.NotContains(t, deferred.Have, acl)
		gone()
		write(t, b, with(one, netvirt.Egress))
	})
	t.Run("after the deletion", func(t *testing.T) {
		b, gone := begin(t)
		require.True(t, isDeferred(t, b.Write(t.Context(), netvirt.Diff(with(both, netvirt.Ingress), with(one, netvirt.Ingress)))))
		err := b.Write(t.Context(), netvirt.Diff(with(one, netvirt.Ingress), with(one, netvirt.Egress)))
		var deferred *netvirt.DeferredError
		require.Error(t, err)
		require.False(t, errors.As(err, &deferred), err)
		want := with(one, netvirt.Egress)
		have, err := b.Read(t.Context())
		require.NoError(t, err)
		require.Equal(t, want[acl], have[acl])
		require.ErrorAs(t, b.Write(t.Context(), netvirt.Diff(have, want)), &deferred)
		require.Contains(t, deferred.Have, pod)
		gone()
		write(t, b, want)
	})
}

// TestNodePortWithoutELANInterface: a port of a node whose elan-interface is missing differs from the wanted one, and is restored.
func TestNodePortWithoutELANInterface(t *testing.T) {
	b, f := start(t, odlfake.Oxygen)
	want := odltest.PodsOf("a")
	node := netip.MustParseAddr("192.168.33.10")
	port := netvirt.NodePort{ELAN: netvirt.ELANName(node, "a"), VPN: "a", Address: node, MAC: netvirt.NodePortMAC(node)}
	want.Add(port)
	write(t, b, want)
	f.Remove("elan:elan-interfaces", "elan-interface", port.Name())
	have, err := b.Read(t.Context())
	require.NoError(t, err)
	require.NotNil(t, have[port.Key()])
	require.NotEqual(t, port, have[port.Key()])
	write(t, b, want)
	require.NotNil(t, f.Entry("elan:elan-interfaces", "elan-interface", port.Name()))
}
