package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cmd/bridge"
	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// cluster has two OVN hosts, and a bridge that writes to their northbound database. Tests create pods,
// plug them in and send traffic between them.
type cluster struct {
	t    *testing.T
	lab  *ovnhost.Lab
	rest rest
	// byNode: OVN has a switch for each node, and none for an elan-instance.
	byNode bool
}

// pod is a pod that runs on a host.
type pod struct {
	said aPod
	host string
	port ovnhost.Pod // the bridge's choices for the pod
}

func (p *pod) String() string { return p.said.namespace + ":" + p.said.name }

func startCluster(t *testing.T, options ...bridgetest.Option) *cluster {
	lab := ovnhost.ForTest(t, "host1", "host2")
	// The defaults of coe-bridge serve.
	options = append([]bridgetest.Option{bridgetest.OVN(lab.NB.Remote), func(c *bridge.Config) { c.ReuseDelay = 30 * time.Second }}, options...)
	c := &cluster{t: t, lab: lab, rest: rest{bridgetest.Start(t, options...).Client()}}
	c.rest.putNode(t, 1, "host1", c.node("host1"), "")
	c.rest.putNode(t, 2, "host2", c.node("host2"), "")
	return c
}

func (c *cluster) node(host string) string { return c.lab.Host(host).Address.String() }

// run creates a pod and plugs it in.
func (c *cluster) run(host string, said aPod) *pod {
	c.t.Helper()
	p := &pod{said: said, host: host}
	p.said.node = c.node(host)
	c.rest.putPods(c.t, p.said)
	c.plug(p)
	return p
}

// plug waits until the backend has confirmed the pod on its host, and plugs it in with the chosen
// addresses.
func (c *cluster) plug(p *pod) {
	c.t.Helper()
	await(c.t, converge, "interface "+p.String()+" confirmed", func() (err error) {
		p.port, err = c.rest.chosen(c.t.Context(), p)
		return err
	})
	require.NoError(c.t, c.lab.Plug(c.t.Context(), p.port))
}

func (c *cluster) delete(p *pod) {
	c.t.Helper()
	c.rest.deletePods(c.t, p.said)
	require.NoError(c.t, c.lab.Unplug(c.t.Context(), p.port))
}

// move moves a pod to another host.
func (c *cluster) move(p *pod, host string) {
	c.t.Helper()
	require.NoError(c.t, c.lab.Unplug(c.t.Context(), p.port))
	p.host, p.said.node = host, c.node(host)
	c.rest.putPods(c.t, p.said)
	c.plug(p)
	require.NoError(c.t, c.lab.Recompute(c.t.Context()))
}

// chosen reads the choices for a pod from the confirmed objects.
func (r rest) chosen(ctx context.Context, p *pod) (ovnhost.Pod, error) {
	var elan []struct {
		ELAN string `json:"elan-instance-name"`
	}
	var vpn []struct {
		Adjacencies []struct {
			Address netip.Prefix `json:"ip_address"`
			MAC     string       `json:"mac_address"`
			Gateway netip.Addr   `json:"subnet_gateway_ip"`
		} `json:"odl-l3vpn:adjacency"`
	}
	var ietf []struct {
		Port string `json:"odl-interface:parent-interface"`
	}
	for _, one := range []struct {
		path string
		out  any
	}{ // the elan-interface is read first: the other objects are of the same write or of a later one
		{"elan:elan-interfaces/elan-interface/", &elan},
		{"l3vpn:vpn-interfaces/vpn-interface/", &vpn},
		{"ietf-interfaces:interfaces/interface/", &ietf},
	} {
		if err := r.read(ctx, "operational/"+one.path+p.String(), one.out); err != nil {
			return ovnhost.Pod{}, err
		}
	}
	if len(elan) == 0 || len(ietf) == 0 || len(vpn) == 0 || len(vpn[0].Adjacencies) == 0 {
		return ovnhost.Pod{}, fmt.Errorf("the backend has not confirmed interface %s", p)
	}
	if want := p.said.node + ":" + p.said.namespace; elan[0].ELAN != want {
		return ovnhost.Pod{}, fmt.Errorf("interface %s is in elan-instance %s: want %s", p, elan[0].ELAN, want)
	}
	a := vpn[0].Adjacencies[0]
	mac, err := net.ParseMAC(a.MAC)
	return ovnhost.Pod{
		Host: p.host, Name: p.String(), UID: p.said.uid, PortName: ietf[0].Port,
		MAC: mac, Address: a.Address, Gateway: a.Gateway,
	}, err
}

// reach sends echo requests from each pod to each other pod, and requires answers.
func (c *cluster) reach(pods ...*pod) {
	c.t.Helper()
	for _, from := range pods {
		for _, to := range pods {
			if from != to {
				require.NoError(c.t, c.lab.Ping(c.t.Context(), from.String(), to.port.Address.Addr()), "%s to %s", from, to)
			}
		}
	}
}

// separate sends echo requests, and requires that no pod answers.
func (c *cluster) separate(from *pod, to ...*pod) {
	c.t.Helper()
	for _, p := range to {
		out, err := c.lab.Exec(c.t.Context(), from.String(), "ping", "-n", "-c", "2", "-i", "0.2", "-W", "1", p.port.Address.Addr().String())
		require.Error(c.t, err, "%s reaches %s: %s", from, p, out)
		require.ErrorContains(c.t, err, "100% packet loss")
	}
}

// pagePort is the port at which each pod serves a page with its name.
const pagePort = 8080

func (c *cluster) serve(pods ...*pod) {
	c.t.Helper()
	for _, p := range pods {
		require.NoError(c.t, c.lab.Serve(p.String(), pagePort, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprint(w, p.String())
		})))
	}
}

// fetches is the number of requests that find all endpoints of a service. With two endpoints, the
// probability to miss one is one in half a million.
const fetches = 20

// awaitServed fetches a page from a pod until exactly the expected pods answer.
func (c *cluster) awaitServed(from *pod, url string, by ...*pod) {
	c.t.Helper()
	want := make([]string, 0, len(by))
	for _, p := range by {
		want = append(want, p.String())
	}
	await(c.t, converge, fmt.Sprintf("%s gets pages of %s", from, url), func() error {
		var got []string
		for range fetches {
			page, err := c.lab.HTTPGet(c.t.Context(), from.String(), url)
			if err != nil {
				return err
			}
			if !slices.Contains(got, page) {
				got = append(got, page)
			}
		}
		return sameSet(want, got)
	})
}

// awaitInstances waits until RESTCONF and the rows of OVN have exactly the instances that the running
// pods need.
func (c *cluster) awaitInstances(running ...*pod) {
	c.t.Helper()
	elans, vpns := map[string]bool{}, map[string]bool{}
	for _, p := range running {
		elans[p.said.node+":"+p.said.namespace], vpns[p.said.namespace] = true, true
	}
	await(c.t, converge, "instances", func() error {
		if err := c.sameNames("elan:elan-instances", "elan-instance", "Logical_Switch", elans); err != nil {
			return err
		}
		return c.sameNames("l3vpn:vpn-instances", "vpn-instance", "Logical_Router", vpns)
	})
}

func (c *cluster) sameNames(tree, list, table string, want map[string]bool) error {
	var top map[string][]map[string]any
	if err := c.rest.read(c.t.Context(), "operational/"+tree, &top); err != nil {
		return err
	}
	var names, wanted []string
	for _, e := range top[list] {
		names = append(names, fmt.Sprint(e[list+"-name"]))
	}
	for name := range want {
		wanted = append(wanted, name)
	}
	if err := sameSet(wanted, names); err != nil {
		return fmt.Errorf("RESTCONF: %s: %w", list, err)
	}
	if c.byNode {
		return nil
	}
	out, err := c.lab.NBCtl(c.t.Context(), "--bare", "--columns=name", "list", table)
	if err != nil {
		return err
	}
	rows := slices.DeleteFunc(strings.Fields(out), func(name string) bool { return strings.HasPrefix(name, "transit:") })
	if err := sameSet(wanted, rows); err != nil {
		return fmt.Errorf("OVN: %s: %w", table, err)
	}
	return nil
}
