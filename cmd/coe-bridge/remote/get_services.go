package remote

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/entrykind"
	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/output"
	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping/status"
	"github.com/coe-bridge/coe-bridge/restconf/client"
)

// services are the services that clients sent.
type services struct {
	List []struct {
		UID       string `json:"uid"`
		Name      string `json:"name"`
		Namespace string `json:"network-NS"`
	} `json:"services"`
}

// mappedServices are the services that have an address.
type mappedServices struct {
	List []struct {
		UID  string `json:"uid"`
		VIPs []vip  `json:"vip"`
	} `json:"service"`
}

type vip struct {
	Protocol  string     `json:"protocol"`
	Address   string     `json:"address"`
	Port      uint16     `json:"port"`
	Endpoints []endpoint `json:"endpoint,omitempty"`
}

type endpoint struct {
	Address string `json:"address"`
	Port    uint16 `json:"port"`
}

// shownService is a service in coe-bridge get services.
type shownService struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	VIPs      []vip  `json:"vips"`
	// Ready and Draining count endpoints. Policy and Exposed are about clients outside.
	Ready    int            `json:"readyEndpoints"`
	Draining int            `json:"drainingEndpoints,omitempty"`
	Policy   string         `json:"externalTrafficPolicy,omitempty"`
	Exposed  []shownExposed `json:"exposed"`
	Problems []coe.Reason   `json:"problems,omitempty"`

	cluster []netip.Addr // its addresses inside the cluster
}

// shownExposed is a port at which clients outside reach a service; see status.Exposed.
type shownExposed struct {
	Way         string         `json:"way"`
	Address     netip.Addr     `json:"address,omitzero"`
	Protocol    string         `json:"protocol"`
	Port        uint16         `json:"port"`
	ServicePort uint16         `json:"servicePort"`
	Restricted  bool           `json:"restricted,omitempty"`
	Sources     []netip.Prefix `json:"sourceRanges,omitempty"`
	Nodes       []netip.Addr   `json:"nodes,omitempty"`
}

func readServices(ctx context.Context, c *client.Client) (output.Table, any, error) {
	shown, err := listServices(ctx, c)
	if err != nil {
		return output.Table{}, nil, err
	}
	t := output.Table{
		Columns: []string{"NAMESPACE", "NAME", "UID", "CLUSTER ADDRESS", "NODE PORTS", "OTHER ADDRESSES", "POLICY", "READY", "PROBLEM"},
		Empty:   "no services; create some with coe-bridge apply -f FILE",
	}
	for _, s := range shown {
		t.Rows = append(t.Rows, s.row())
	}
	return t, shown, nil
}

// listServices returns all services, sorted by namespace and name.
func listServices(ctx context.Context, c *client.Client) ([]shownService, error) {
	var (
		all    services
		mapped mappedServices
		reach  status.Services
		st     status.Status
	)
	if err := c.Get(ctx, client.Wanted, "service:service-information", &all); err != nil {
		return nil, err
	}
	if err := c.Get(ctx, client.Wanted, "coe-netvirt:services", &mapped); err != nil {
		return nil, err
	}
	_ = c.Get(ctx, client.Confirmed, "coe-status:services", &reach) // a bridge of an earlier version has none; other errors come again below
	if err := c.Get(ctx, client.Confirmed, "coe-status:status", &st); err != nil {
		return nil, err
	}
	return showServices(all, mapped, reach, reasons(&st)), nil
}

func showServices(all services, mapped mappedServices, reach status.Services, problems map[string][]coe.Reason) []shownService {
	vips, reached := map[string][]vip{}, map[string]status.Service{}
	for _, m := range mapped.List {
		vips[m.UID] = m.VIPs
	}
	for _, r := range reach.Services {
		reached[r.UID] = r
	}
	shown := []shownService{}
	for _, s := range all.List {
		r := reached[s.UID]
		one := shownService{
			Namespace: entrykind.Namespace(s.Namespace), Name: s.Name, UID: s.UID, VIPs: output.Listed(vips[s.UID]),
			Ready: r.Ready, Draining: r.Draining, Policy: r.Policy, Exposed: []shownExposed{}, Problems: problems[s.UID], cluster: r.Cluster,
		}
		for _, e := range r.Exposed {
			one.Exposed = append(one.Exposed, shownExposed(e))
		}
		shown = append(shown, one)
	}
	slices.SortFunc(shown, func(a, b shownService) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	return shown
}

// row returns the row of a service. Ports of an address follow the address. Other addresses are those at which clients
// outside reach the service: external addresses, load balancer addresses, and gateways.
func (s *shownService) row() []string {
	var inside, outside addresses
	for _, v := range s.VIPs {
		addr, err := netip.ParseAddr(v.Address)
		switch {
		case err != nil:
		case slices.Contains(s.cluster, addr):
			inside.add(addr, "", v.Port, v.Protocol)
		case !slices.ContainsFunc(s.Exposed, func(e shownExposed) bool { return e.Address == addr }):
			outside.add(addr, " (pods only)", v.Port, v.Protocol)
		}
	}
	var nodePorts, problems []string
	for _, e := range s.Exposed {
		note := ""
		switch {
		case e.Way == status.ByNodePort:
			nodePorts = append(nodePorts, fmt.Sprintf("%d/%s", e.Port, e.Protocol))
			continue
		case e.Way == status.ByGateway:
			note = " (gateway)"
		case e.Restricted:
			note = " (restricted)"
		}
		outside.add(e.Address, note, e.Port, e.Protocol)
	}
	for _, reason := range s.Problems {
		problems = append(problems, string(reason))
	}
	return []string{
		s.Namespace, s.Name, s.UID, inside.String(), strings.Join(nodePorts, ","), outside.String(), s.Policy, strconv.Itoa(s.Ready), strings.Join(problems, ","),
	}
}

// addresses are addresses with their ports, in the order in which they were added.
type addresses struct {
	order []netip.Addr
	ports map[netip.Addr][]string
	notes map[netip.Addr]string
}

// add adds a port, 0 for all ports of the address.
func (a *addresses) add(at netip.Addr, note string, port uint16, protocol string) {
	if a.ports == nil {
		a.ports, a.notes = map[netip.Addr][]string{}, map[netip.Addr]string{}
	}
	if _, known := a.ports[at]; !known {
		a.order = append(a.order, at)
	}
	text := protocol
	if port != 0 {
		text = fmt.Sprintf("%d/%s", port, protocol)
	}
	a.ports[at], a.notes[at] = append(a.ports[at], text), note
}

// String returns the addresses as text.
func (a *addresses) String() string {
	texts := make([]string, len(a.order))
	for i, at := range a.order {
		texts[i] = at.String() + " " + strings.Join(a.ports[at], ",") + a.notes[at]
	}
	return strings.Join(texts, "; ")
}
