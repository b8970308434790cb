package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"
	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
	"github.com/coe-bridge/coe-bridge/test/lab/nbcopy"
)

// rows are the current rows of a northbound database. The client has a copy of them, and the server sends it each change a
// moment after a bridge has the answer that the change is made.
type rows struct{ client.Client }

// connect follows a database until the test ends.
func connect(t *testing.T, endpoint string) rows {
	t.Helper()
	c, err := nbcopy.Connect(t.Context(), endpoint)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	_, err = c.MonitorAll(t.Context())
	require.NoError(t, err)
	return rows{c}
}

// TestRowsAreCurrent makes rows with another connection, and reads each as soon as that one has the answer.
func TestRowsAreCurrent(t *testing.T) {
	w := &world{}
	w.newBackend(t)
	writer, err := nbcopy.Connect(t.Context(), w.nb.Endpoint())
	require.NoError(t, err)
	t.Cleanup(writer.Close)
	for n := range 500 {
		made, err := writer.Create(&nb.LogicalRouter{Name: fmt.Sprintf("router-%d", n)})
		require.NoError(t, err)
		results, err := writer.Transact(t.Context(), made...)
		require.NoError(t, err)
		_, err = ovsdb.CheckOperationResults(results, made)
		require.NoError(t, err)
		now, err := w.rows.read(t.Context())
		require.NoError(t, err)
		require.Len(t, now.routers, n+1)
	}
}

// tables is one reading of all rows.
type tables struct {
	switches  []nb.LogicalSwitch
	ports     []nb.LogicalSwitchPort
	routers   []nb.LogicalRouter
	gateways  []nb.LogicalRouterPort
	routes    []nb.LogicalRouterStaticRoute
	policies  []nb.LogicalRouterPolicy
	acls      []nb.ACL
	dhcp      []nb.DHCPOptions
	balancers []nb.LoadBalancer
	groups    []nb.LoadBalancerGroup
	bindings  []nb.StaticMACBinding
}

// read reads all rows. It has all changes that were made before the call: the server sends them before it answers Echo.
func (r rows) read(ctx context.Context) (*tables, error) {
	if err := r.Echo(ctx); err != nil {
		return nil, err
	}
	t := &tables{}
	for _, table := range []any{
		&t.switches, &t.ports, &t.routers, &t.gateways, &t.routes, &t.policies, &t.acls,
		&t.dhcp, &t.balancers, &t.groups, &t.bindings,
	} {
		if err := r.List(ctx, table); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// lines returns the rows, one in each line. It fails if two rows have the same unique identifier, or if
// a row has wrong connections.
func (t *tables) lines() ([]string, error) {
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	switchOf, routerOf, routeOf, network := map[string]string{}, map[string]string{}, map[string]string{}, map[string]string{}
	links := map[string]bool{} // ports that have a peer
	for _, s := range t.switches {
		add("switch %s", s.Name)
		note(switchOf, s.Name, s.Ports)
	}
	for _, r := range t.routers {
		add("router %s", r.Name)
		note(routerOf, r.Name, r.Ports)
		note(routeOf, r.Name, r.StaticRoutes)
	}
	for _, d := range t.dhcp {
		if d.Cidr == "" || d.ExternalIDs["coe-bridge/vpn"] != "" { // it holds an object
			add("%s %s", d.ExternalIDs["coe-bridge/kind"], d.ExternalIDs["coe-bridge/name"])
		}
		if d.Cidr != "" {
			add("dhcp %s", d.Cidr)
		}
		network[d.UUID] = d.Cidr
	}
	for i := range t.ports {
		p := &t.ports[i]
		if p.Type == "router" {
			add("port %s on %s: router %s", p.Name, switchOf[p.UUID], p.Options["router-port"])
			continue
		}
		if isNodePort(p) {
			add("port %s on %s: %s, chassis %s", p.Name, switchOf[p.UUID], strings.Join(p.Addresses, ", "), p.Options["requested-chassis"])
			continue
		}
		add("port %s on %s: %s, dhcp %s, pod %s, chassis %s", p.Name, switchOf[p.UUID], strings.Join(p.Addresses, ", "),
			networks(p, network), p.Options["iface-id-ver"], p.Options["requested-chassis"])
	}
	for _, g := range t.gateways {
		if links[g.Name] = g.Peer != nil; g.Peer != nil { // the bridge chooses the network of a link
			add("router port %s of %s", g.Name, routerOf[g.UUID])
			continue
		}
		add("router port %s of %s: %s", g.Name, routerOf[g.UUID], strings.Join(g.Networks, " "))
	}
	for _, r := range t.routes {
		via := ""
		if !links[*r.OutputPort] {
			via = " via " + r.Nexthop
		}
		add("route of %s: %s%s by %s", routeOf[r.UUID], r.IPPrefix, via, *r.OutputPort)
	}
	for i := range t.balancers {
		add("%s", balancerLine(&t.balancers[i]))
	}
	for _, b := range t.bindings {
		add("binding %s", b.LogicalPort)
	}
	return append(out, t.filterLines()...), errors.Join(t.checkReach(), t.checkSecurity(), t.checkLinks(), t.checkIDs())
}

func note(parents map[string]string, name string, children []string) {
	for _, child := range children {
		parents[child] = name
	}
}

// networks returns the networks of a port's DHCP options, IPv4 first.
func networks(p *nb.LogicalSwitchPort, cidrs map[string]string) string {
	var out []string
	for _, o := range []*string{p.Dhcpv4Options, p.Dhcpv6Options} {
		if o != nil {
			out = append(out, cidrs[*o])
		}
	}
	return strings.Join(out, " ")
}

func balancerLine(b *nb.LoadBalancer) string {
	var vips []string
	for vip, to := range b.Vips {
		backends := strings.Split(to, ",")
		slices.Sort(backends)
		vips = append(vips, vip+"="+strings.Join(backends, ","))
	}
	slices.Sort(vips)
	return fmt.Sprintf("balancer %s %s, affinity %q: %s", b.Name, *b.Protocol, b.Options["affinity_timeout"], strings.Join(vips, " "))
}

// checkReach fails unless every switch uses every load balancer, and the group of its node or, if the node
// is not known, the group of clients elsewhere. No service has places, so these groups are empty. All
// load balancers must have the options of a service.
func (t *tables) checkReach() error {
	var errs []error
	all, elsewhere := t.group("/transit/100:1"), t.group("/elsewhere/100:1")
	if all == nil || elsewhere == nil {
		return errors.New("a group of the transit's load balancers is missing")
	}
	for _, s := range t.switches {
		place := elsewhere
		if node := nodeOf(s.Name); node != "" {
			// Without a host name it is a node that no source reports, whose pods can run.
			if own := t.group("/node/" + node + "/"); own != nil && !strings.HasSuffix(own.Name, "/") {
				place = own
			}
		}
		want := []string{all.UUID, place.UUID}
		slices.Sort(want)
		if have := slices.Sorted(slices.Values(s.LoadBalancerGroup)); !slices.Equal(have, want) {
			errs = append(errs, fmt.Errorf("switch %s has load balancer groups %q, want %q", s.Name, have, want))
		}
	}
	ofVPNs := 0
	for _, g := range t.groups {
		switch {
		case strings.Contains(g.Name, "/vpn/"):
			ofVPNs++
		case g.UUID != all.UUID && len(g.LoadBalancer) > 0:
			errs = append(errs, fmt.Errorf("group %s has %d load balancers", g.Name, len(g.LoadBalancer)))
		}
	}
	vpns := len(t.holding("vpn-instance")) + len(t.routers) - 1
	if len(all.LoadBalancer) != len(t.balancers) || ofVPNs != vpns {
		errs = append(errs, fmt.Errorf("%d of %d load balancers in the transit's group, %d groups of %d vpn-instances",
			len(all.LoadBalancer), len(t.balancers), ofVPNs, vpns))
	}
	for i := range t.balancers {
		o := t.balancers[i].Options
		if o["reject"] != "true" || o["hairpin_snat_ip"] == "" {
			errs = append(errs, fmt.Errorf("load balancer %s has options %v", t.balancers[i].Name, o))
		}
	}
	return errors.Join(errs...)
}

// nodeOf returns the address of the node of a switch. It is empty if the switch is of no node.
func nodeOf(name string) string {
	if node, is := strings.CutPrefix(name, "node:"); is {
		return node
	}
	node, _, err := netvirt.ParseELANName(name)
	if err != nil {
		return ""
	}
	return node.String()
}

// group returns the group of load balancers whose name contains a text; nil if there is none.
func (t *tables) group(text string) *nb.LoadBalancerGroup {
	i := slices.IndexFunc(t.groups, func(g nb.LoadBalancerGroup) bool { return strings.Contains(g.Name, text) })
	if i < 0 {
		return nil
	}
	return &t.groups[i]
}

// checkSecurity fails unless pods can send only from their own addresses, and nodes from any address.
// Traffic from outside the cluster, which comes through nodes, has outside addresses.
func (t *tables) checkSecurity() error {
	for i := range t.ports {
		p := &t.ports[i]
		if isNodePort(p) && len(p.PortSecurity) > 0 || isPodPort(p) && !slices.Equal(p.Addresses, p.PortSecurity) {
			return fmt.Errorf("port %s: addresses %q, security %q", p.Name, p.Addresses, p.PortSecurity)
		}
	}
	return nil
}

// checkIDs fails unless all VNIs and route distinguishers are unique.
func (t *tables) checkIDs() error {
	holders := map[string]string{}
	own := func(name, id string) error {
		if other := holders[id]; other != "" {
			return fmt.Errorf("%s and %s both have %s", other, name, id)
		}
		holders[id] = name
		return nil
	}
	var errs []error
	for _, d := range t.holding("elan-instance") {
		errs = append(errs, own(d["coe-bridge/name"], "VNI "+d["coe-bridge/segmentation-id"]))
	}
	for _, d := range t.holding("vpn-instance") {
		errs = append(errs, own(d["coe-bridge/name"], "RD "+d["coe-bridge/route-distinguisher"]))
	}
	for _, s := range t.switches {
		if !strings.HasPrefix(s.Name, "node:") && !strings.HasPrefix(s.Name, "nodes:") {
			errs = append(errs, own(s.Name, "VNI "+s.ExternalIDs["coe-bridge/segmentation-id"]))
		}
	}
	for _, r := range t.routers {
		errs = append(errs, own(r.Name, "RD "+r.ExternalIDs["coe-bridge/route-distinguisher"]))
	}
	return errors.Join(errs...)
}

// exact returns an error if the database differs from the rows that a fresh list of the cluster
// requires.
func (w *world) exact(t *testing.T, r running) error {
	t.Helper()
	f, err := list(t.Context(), w.Client())
	if err != nil {
		return err
	}
	leases := r.leases()
	now, err := w.rows.read(t.Context())
	if err != nil {
		return err
	}
	want, err := f.wanted(leases, joined{w.network, w.agents.Places()}, now.gatewaysOf(w.layout))
	if err != nil {
		return shortened(err)
	}
	got, err := now.lines()
	return shortened(errors.Join(err, difference(want, got), checkRecords(w.agents.Records(), leases)))
}

// difference returns an error with the missing and the unexpected lines.
func difference(want, got []string) error {
	there := map[string]int{}
	for _, line := range got {
		there[line]++
	}
	var errs []error
	for _, line := range want {
		if there[line] == 0 {
			errs = append(errs, fmt.Errorf("missing: %s", line))
		}
		there[line]--
	}
	for line, n := range there {
		if n > 0 {
			errs = append(errs, fmt.Errorf("too many: %s", line))
		}
	}
	return errors.Join(errs...)
}

// shortened returns an error with a shorter text.
func shortened(err error) error {
	const most = 3000
	if err == nil || len(err.Error()) <= most {
		return err
	}
	text := err.Error()
	return fmt.Errorf("%s … and %d bytes more", text[:most], len(text)-most)
}

// awaitExact waits until the database has exactly the rows that the cluster requires, the bridge
// reports that it is in sync, and the agents have the records.
func (w *world) awaitExact(t *testing.T, r running, within time.Duration) {
	t.Helper()
	w.agents.At(r.URL())
	bridgetest.Await(t, interval*10, within, "the rows that the cluster requires", func() error {
		if err := r.inSync(); err != nil {
			return err // exact lists the whole cluster
		}
		return w.exact(t, r)
	})
}
