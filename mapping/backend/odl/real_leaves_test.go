package odl_test

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/odltest"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	realodl "github.com/coe-bridge/coe-bridge/test/lab/odl"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// realPatience is the timeout for a controller on a busy machine.
const realPatience = 3 * time.Minute

// requireIdle waits until Netvirt has processed all elan-instances that were written and
// deleted before. It processes one after the other, and tags a new one last.
func requireIdle(t *testing.T, c *realodl.Controller) {
	t.Helper()
	const name = "idle"
	last := placed{"elan:elan-instances", "elan-instance", name, map[string]any{"elan-instance-name": name}}
	realPut(t, c, last)
	require.Eventually(t, func() bool {
		return realEntry(t, c, last.top, last.list, name)["elan-tag"] != nil
	}, realPatience, 50*time.Millisecond)
	takeAway(t, c, last)
}

// realOthers: entries of Neutron and of an operator on a real controller never change.
func realOthers(t *testing.T, c *realodl.Controller, dialect string) {
	requireIdle(t, c)
	all := ofOthers()
	for _, p := range all {
		realPut(t, c, p)
		defer takeAway(t, c, p)
	}
	before := map[string]any{}
	for _, p := range all {
		require.Eventually(t, func() bool { // Netvirt adds a tag
			e := realEntry(t, c, p.top, p.list, p.key)
			before[p.top+p.key] = e
			return p.list != "elan-instance" || e["elan-tag"] != nil
		}, realPatience, 100*time.Millisecond, "%s %s", p.top, p.key)
	}
	b := open(t, realConfig(t, c, dialect))
	for seed := range uint64(4) {
		write(t, b, small(b, seed, 10))
	}
	write(t, b, netvirt.Model{})
	for _, p := range all {
		require.Equal(t, before[p.top+p.key], any(realEntry(t, c, p.top, p.list, p.key)), "%s %s", p.top, p.key)
	}
}

func placeOf(top, list, key string) string {
	return "/restconf/config/" + top + "/" + list + "/" + url.QueryEscape(key)
}

func realPut(t *testing.T, c *realodl.Controller, p placed) {
	t.Helper()
	body, err := json.Marshal(map[string]any{p.list: []any{p.value}})
	require.NoError(t, err)
	status, answer, err := c.Request(t.Context(), http.MethodPut, placeOf(p.top, p.list, p.key), string(body))
	require.NoError(t, err)
	require.Less(t, status, 300, "%s %s: %s", p.top, p.key, answer)
}

func takeAway(t *testing.T, c *realodl.Controller, p placed) {
	t.Helper()
	status, answer, err := c.Request(t.Context(), http.MethodDelete, placeOf(p.top, p.list, p.key), "")
	require.NoError(t, err)
	require.Less(t, status, 300, "%s", answer)
}

// realEntry returns an entry of a list as the controller has it.
func realEntry(t *testing.T, c *realodl.Controller, top, list, key string) map[string]any {
	t.Helper()
	status, answer, err := c.Request(t.Context(), http.MethodGet, placeOf(top, list, key), "")
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status, "%s %s: %s", top, key, answer)
	var found map[string][]map[string]any
	require.NoError(t, json.Unmarshal(answer, &found))
	for _, entries := range found {
		require.Len(t, entries, 1)
		return entries[0]
	}
	return nil
}

// realPlugged: pods that are plugged in reach each other. Our writes delete nothing that the
// controller adds to the pods' entries or stores beside them, and never interrupt traffic.
func realPlugged(t *testing.T, c *realodl.Controller) {
	requireIdle(t, c)
	b := open(t, realConfig(t, c, ""))
	want := odltest.PodsOf("default")
	odltest.PodOn(want, "default", "pod-2", 0, 3)
	write(t, b, want)
	first, second := plugIn(t, c, want, "default:pod-1"), plugIn(t, c, want, "default:pod-2")
	requireReach(t, c, first, second)
	elan := netvirt.ELANName(netip.MustParseAddr("192.168.33.10"), "default")
	before := realEntry(t, c, "elan:elan-instances", "elan-instance", elan)
	require.NotNil(t, before["elan-tag"])
	require.NotNil(t, before["mac-timeout"])
	bindings := bindingsOf(t, c, first)
	require.NotEmpty(t, bindings)

	for _, change := range []struct {
		what string
		make func(netvirt.Object) netvirt.Object
	}{
		{"host name", func(o netvirt.Object) netvirt.Object {
			if o, ok := o.(netvirt.ELANInterface); ok {
				o.Chassis = "another"
				return o
			}
			return o
		}},
		{"uid of the interface", func(o netvirt.Object) netvirt.Object {
			if o, ok := o.(netvirt.Interface); ok {
				o.UID = "another"
				return o
			}
			return o
		}},
		{"segmentation-id", func(o netvirt.Object) netvirt.Object {
			if o, ok := o.(netvirt.ELANInstance); ok {
				o.SegmentationID++
				return o
			}
			return o
		}},
		{"vpn", func(o netvirt.Object) netvirt.Object {
			if o, ok := o.(netvirt.VPNInstance); ok {
				o.Transit = ""
				return o
			}
			return o
		}},
	} {
		for k, o := range want {
			want[k] = change.make(o)
		}
		write(t, b, want)
		after := realEntry(t, c, "elan:elan-instances", "elan-instance", elan)
		require.Equal(t, before["elan-tag"], after["elan-tag"], change.what)
		require.Equal(t, before["mac-timeout"], after["mac-timeout"], change.what)
		require.Eventually(t, func() bool { return len(bindingsOf(t, c, first)) == len(bindings) }, realPatience, 100*time.Millisecond, change.what)
		requireReach(t, c, first, second)
		requireReach(t, c, second, first)
	}
	write(t, b, netvirt.Model{})
	require.Eventually(t, func() bool { return len(bindingsOf(t, c, first)) == 0 }, realPatience, 100*time.Millisecond)
}

// pluggedPod is a pod on the lab's host.
type pluggedPod struct {
	name    string
	address netip.Addr
}

// plugIn plugs a pod of a model into the host until the end of the test, like an agent. Netvirt writes the port into every
// later interface with the name of the pod.
func plugIn(t *testing.T, c *realodl.Controller, m netvirt.Model, name string) pluggedPod {
	t.Helper()
	for _, o := range m {
		a, ok := o.(netvirt.Adjacency)
		if !ok || a.Interface != name {
			continue
		}
		port := m[netvirt.Key{Kind: netvirt.KindInterface, Name: name}].(netvirt.Interface).ParentInterface
		mac, err := net.ParseMAC(a.MAC)
		require.NoError(t, err)
		pod := ovnhost.Pod{
			Host: c.Lab.Hosts[0].Name, Name: name, UID: name, PortName: port, MAC: mac,
			Address: netip.PrefixFrom(a.Address, a.Network.Bits()), Gateway: a.Gateway,
		}
		require.NoError(t, c.Lab.Plug(t.Context(), pod))
		t.Cleanup(func() { require.NoError(t, c.Lab.Unplug(context.WithoutCancel(t.Context()), pod)) })
		return pluggedPod{name, a.Address}
	}
	require.Fail(t, "the model has no such pod", name)
	return pluggedPod{}
}

func requireReach(t *testing.T, c *realodl.Controller, from, to pluggedPod) {
	t.Helper()
	require.Eventually(t, func() bool { return c.Lab.Ping(t.Context(), from.name, to.address) == nil }, realPatience, 100*time.Millisecond,
		"%s reaches %s", from.name, to.name)
}

// bindingsOf returns the services that the controller has bound to a pod's interface.
func bindingsOf(t *testing.T, c *realodl.Controller, p pluggedPod) (bound []string) {
	status, answer, err := c.Request(t.Context(), http.MethodGet, "/restconf/config/interface-service-bindings:service-bindings", "")
	require.NoError(t, err)
	if status == http.StatusNotFound {
		return nil
	}
	require.Equal(t, http.StatusOK, status, "%s", answer)
	var found struct {
		Top struct {
			List []struct {
				Interface string `json:"interface-name"`
				Services  []struct {
					Name string `json:"service-name"`
				} `json:"bound-services"`
			} `json:"services-info"`
		} `json:"service-bindings"`
	}
	require.NoError(t, json.Unmarshal(answer, &found))
	for _, i := range found.Top.List {
		for _, s := range i.Services {
			if i.Interface == p.name {
				bound = append(bound, s.Name)
			}
		}
	}
	return bound
}
