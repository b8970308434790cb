package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cmd/bridge"
	"github.com/coe-bridge/coe-bridge/mapping"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
	"github.com/coe-bridge/coe-bridge/test/lab/dhcpclient"
)

// TestTraffic runs the specification's use cases with packets. Every pod can reach every pod.
func TestTraffic(t *testing.T) { testTraffic(t, ovn.LayoutELAN) }

// TestTrafficOfLayoutNode is TestTraffic with a switch for each node, whose gateways are bound to its chassis.
func TestTrafficOfLayoutNode(t *testing.T) { testTraffic(t, ovn.LayoutNode, "host1", "host2") }

// TestTrafficOfUnboundGateways is TestTrafficOfLayoutNode with the chassis of one node only: the other one has no agent, or an older one.
func TestTrafficOfUnboundGateways(t *testing.T) { testTraffic(t, ovn.LayoutNode, "host2") }

// testTraffic runs with the chassis of some hosts, as their agents would report them.
func testTraffic(t *testing.T, layout ovn.Layout, chassis ...string) {
	t.Parallel()
	c := startCluster(t, func(cfg *bridge.Config) { cfg.Backend.OVN.Layout = layout })
	c.byNode = layout == ovn.LayoutNode
	for _, host := range chassis {
		c.rest.change(t, http.MethodPut, "coe-agent:chassis/node/"+c.node(host), fmt.Sprintf(`{"node":[{"address":%q,"system-id":%q}]}`, c.node(host), host))
	}
	c.rest.putPool(t, addressPool{
		network: "default", subnet: "10.42.0.0/16", from: "10.42.0.2", to: "10.42.255.254", gateway: "10.42.0.1", dns: []string{"10.96.0.2", "10.96.0.3"},
	})
	front := c.run("host1", aPod{uid: uid("a", 1), namespace: "web", name: "front"})
	cache := c.run("host1", aPod{uid: uid("a", 2), namespace: "web", name: "cache"})
	back := c.run("host2", aPod{uid: uid("a", 3), namespace: "web", name: "back"})
	cart := c.run("host1", aPod{uid: uid("a", 4), namespace: "shop", name: "cart"})
	till := c.run("host2", aPod{uid: uid("a", 5), namespace: "shop", name: "till"})
	pods := []*pod{front, cache, back, cart, till}

	c.step("every pod reaches every pod", func() { c.reach(pods...) })
	c.requireBound(chassis...)
	c.step("service", func() { c.testService(front, back, cache, cart, till) })
	c.step("DHCP", func() { c.testDHCP(cart, back, []string{"10.96.0.2", "10.96.0.3"}) })
	c.step("a pod moves", func() { c.testMove(till, front, back, cart) })
	c.step("addresses from no pool", func() { pods = append(pods, c.testSingles(front, back, till)...) })
	c.step("instances are removed with the last pod", func() {
		for len(pods) > 0 {
			c.delete(pods[0])
			pods = pods[1:]
			c.awaitInstances(pods...)
		}
	})
}

// step runs a part of a test. It needs the earlier parts.
func (c *cluster) step(name string, do func()) {
	c.t.Helper()
	whole := c.t
	defer func() { c.t = whole }()
	if !whole.Run(name, func(t *testing.T) { c.t = t; do() }) {
		whole.FailNow()
	}
}

// requireBound waits until OVN has bound a gateway of each of these hosts, and requires that it has bound no other one.
func (c *cluster) requireBound(hosts ...string) {
	c.t.Helper()
	await(c.t, converge, fmt.Sprint("gateways are bound to ", hosts), func() error {
		for _, h := range c.lab.Hosts {
			chassis, err := c.lab.SBCtl(c.t.Context(), "--bare", "--columns=_uuid", "find", "Chassis", "name="+h.Name)
			if err != nil {
				return err
			}
			gateways, err := c.lab.SBCtl(c.t.Context(), "--bare", "--columns=logical_port", "find", "Port_Binding", "type=chassisredirect", "chassis="+strings.TrimSpace(chassis))
			if err != nil {
				return err
			}
			if slices.Contains(hosts, h.Name) != (gateways != "") {
				return fmt.Errorf("gateways of %s on its chassis: %q", h.Name, gateways)
			}
		}
		return nil
	})
}

// testService adds two pods to a service with a cluster IP, and removes them again.
func (c *cluster) testService(front, back *pod, clients ...*pod) {
	const url = "http://10.96.0.10/"
	s := aService{
		uid: uid("b", 1), namespace: "web", name: "page", address: "10.96.0.10", port: 80, target: fmt.Sprint(pagePort),
		endpoints: []string{front.said.uid, back.said.uid},
	}
	c.serve(front, back)
	c.rest.change(c.t, http.MethodPost, "service:service-information", s.body())
	for _, client := range append(clients, front, back) { // the last two also reach themselves
		c.awaitServed(client, url, front, back)
	}
	s.endpoints = []string{back.said.uid}
	c.rest.change(c.t, http.MethodPut, servicePath(s.uid), s.body())
	for _, client := range append(clients, front, back) {
		c.awaitServed(client, url, back)
	}
	s.endpoints = nil
	c.rest.change(c.t, http.MethodPut, servicePath(s.uid), s.body())
	await(c.t, converge, "a service without endpoints refuses connections", func() error {
		page, err := c.lab.HTTPGet(c.t.Context(), clients[0].String(), url)
		if errors.Is(err, syscall.ECONNREFUSED) {
			return nil
		}
		return fmt.Errorf("got %q, %w", page, err)
	})
	c.rest.change(c.t, http.MethodDelete, servicePath(s.uid), nil)
}

// testDHCP removes a pod's address from its link, and gets it again by DHCP.
func (c *cluster) testDHCP(p, other *pod, dns []string) {
	ctx := c.t.Context()
	for _, what := range []string{"route", "address"} {
		_, err := c.lab.Exec(ctx, p.String(), "ip", what, "flush", "dev", "eth0")
		require.NoError(c.t, err)
	}
	offer, err := dhcpclient.Ask(ctx, c.lab, p.String(), p.port.MAC)
	require.NoError(c.t, err)
	require.Equal(c.t, p.port.Address.Addr(), offer.Address)
	require.Equal(c.t, []netip.Addr{p.port.Gateway}, offer.Routers)
	require.Equal(c.t, dns, texts(offer.DNS))
	require.EqualValues(c.t, 3600, offer.Seconds)
	require.True(c.t, offer.Subnet().Contains(p.port.Gateway), "%s holds the gateway %s", offer.Subnet(), p.port.Gateway)

	for _, args := range [][]string{
		{"address", "add", netip.PrefixFrom(offer.Address, offer.MaskBits).String(), "dev", "eth0"},
		{"route", "add", "default", "via", offer.Routers[0].String()},
	} {
		_, err := c.lab.Exec(ctx, p.String(), slices.Concat([]string{"ip"}, args)...)
		require.NoError(c.t, err)
	}
	c.reach(p, other)
}

// testMove moves a pod to another node.
func (c *cluster) testMove(p *pod, others ...*pod) {
	before := p.port
	c.move(p, "host1")
	require.NotEqual(c.t, before.Host, p.port.Host)
	c.reach(append(others, p)...)
	c.move(p, "host2")
	c.reach(append(others, p)...)
}

// testSingles runs pods whose addresses are in no pool, on a node with a pod-cidr and on a node
// without one.
func (c *cluster) testSingles(pooled ...*pod) []*pod {
	c.rest.putNode(c.t, 1, "host1", c.node("host1"), "10.77.1.0/24")
	singles := []*pod{
		c.run("host1", aPod{uid: uid("a", 11), namespace: "web", name: "single-cidr", address: "10.77.1.5"}),
		c.run("host1", aPod{uid: uid("a", 12), namespace: "web", name: "single-cidr2", address: "10.77.1.6"}),
		c.run("host1", aPod{uid: uid("a", 13), namespace: "shop", name: "single", address: "10.78.0.5"}),
		c.run("host2", aPod{uid: uid("a", 14), namespace: "web", name: "single-far", address: "10.78.0.6"}),
		c.run("host2", aPod{uid: uid("a", 15), namespace: "lone", name: "single-lone", address: "10.78.0.7"}),
	}
	link := netip.MustParseAddr("169.254.1.1")
	for i, gateway := range []netip.Addr{netip.MustParseAddr("10.77.1.1"), netip.MustParseAddr("10.77.1.1"), link, link, link} {
		require.Equal(c.t, netip.MustParsePrefix(singles[i].said.address+"/32"), singles[i].port.Address)
		require.Equal(c.t, gateway, singles[i].port.Gateway, singles[i].String())
	}
	c.reach(append(pooled, singles...)...)
	return singles
}

// TestTrafficIsolated tests which pods reach each other if each namespace is its own network.
func TestTrafficIsolated(t *testing.T) {
	t.Parallel()
	c := startCluster(t, func(cfg *bridge.Config) { cfg.Mapping.Isolation = mapping.IsolationNamespace })
	c.rest.putPool(t, addressPool{network: "default", subnet: "10.43.0.0/24", gateway: "10.43.0.1"})
	front := c.run("host1", aPod{uid: uid("a", 1), namespace: "web", name: "front"})
	back := c.run("host2", aPod{uid: uid("a", 2), namespace: "web", name: "back"})
	cart := c.run("host1", aPod{uid: uid("a", 3), namespace: "shop", name: "cart"})
	till := c.run("host2", aPod{uid: uid("a", 4), namespace: "shop", name: "till"})
	// The same address as front, in another namespace and so in another network.
	twin := c.run("host2", aPod{uid: uid("a", 5), namespace: "twin", name: "twin", address: front.port.Address.Addr().String()})

	c.step("within a namespace", func() { c.reach(front, back); c.reach(cart, till) })
	c.step("not across namespaces", func() {
		c.separate(cart, back)
		c.separate(till, back)
		c.separate(back, cart, till)
		c.separate(twin, back, till)
	})
	c.step("a service within its namespace", func() {
		c.serve(front)
		s := aService{
			uid: uid("b", 1), namespace: "web", name: "page", address: "10.96.0.10", port: 80, target: fmt.Sprint(pagePort),
			endpoints: []string{front.said.uid},
		}
		c.rest.change(t, http.MethodPut, servicePath(s.uid), s.body())
		c.awaitServed(back, "http://10.96.0.10/", front)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := c.lab.HTTPGet(ctx, cart.String(), "http://10.96.0.10/")
		require.Error(t, err)
	})
}

func texts[T fmt.Stringer](values []T) []string {
	out := make([]string, 0, len(values))
	for _, v := range values {
		out = append(out, v.String())
	}
	return out
}
