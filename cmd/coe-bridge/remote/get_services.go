package remote

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
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
	Namespace string       `json:"namespace"`
	Name      string       `json:"name"`
	UID       string       `json:"uid"`
	VIPs      []vip        `json:"vips"`
	Problems  []coe.Reason `json:"problems,omitempty"`
}

func readServices(ctx context.Context, c *client.Client) (output.Table, any, error) {
	var (
		all    services
		mapped mappedServices
		st     status.Status
	)
	if err := c.Get(ctx, client.Wanted, "service:service-information", &all); err != nil {
		return output.Table{}, nil, err
	}
	if err := c.Get(ctx, client.Wanted, "coe-netvirt:services", &mapped); err != nil {
		return output.Table{}, nil, err
	}
	if err := c.Get(ctx, client.Confirmed, "coe-status:status", &st); err != nil {
		return output.Table{}, nil, err
	}
	t := output.Table{
		Columns: []string{"NAMESPACE", "NAME", "UID", "ADDRESS", "ENDPOINTS", "PROBLEM"},
		Empty:   "no services; create some with coe-bridge apply -f FILE",
	}
	shown := showServices(all, mapped, reasons(&st))
	for _, s := range shown {
		t.Rows = append(t.Rows, s.rows()...)
	}
	return t, shown, nil
}

func showServices(all services, mapped mappedServices, problems map[string][]coe.Reason) []shownService {
	vips := map[string][]vip{}
	for _, m := range mapped.List {
		vips[m.UID] = m.VIPs
	}
	shown := []shownService{}
	for _, s := range all.List {
		shown = append(shown, shownService{
			Namespace: entrykind.Namespace(s.Namespace), Name: s.Name, UID: s.UID,
			VIPs: output.Listed(vips[s.UID]), Problems: problems[s.UID],
		})
	}
	slices.SortFunc(shown, func(a, b shownService) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	return shown
}

// rows returns a row for each address and port, or one row for a service without any.
func (s shownService) rows() [][]string {
	var problems []string
	for _, reason := range s.Problems {
		problems = append(problems, string(reason))
	}
	row := func(address, endpoints string) []string {
		return []string{s.Namespace, s.Name, s.UID, address, endpoints, strings.Join(problems, ",")}
	}
	if len(s.VIPs) == 0 {
		return [][]string{row("", "")}
	}
	var rows [][]string
	for _, v := range s.VIPs {
		var endpoints []string
		for _, e := range v.Endpoints {
			endpoints = append(endpoints, hostPort(e.Address, e.Port))
		}
		rows = append(rows, row(v.Protocol+" "+hostPort(v.Address, v.Port), strings.Join(endpoints, ",")))
	}
	return rows
}

// within counts the addresses of services in a subnet.
func (m mappedServices) within(subnet string) int {
	prefix, err := netip.ParsePrefix(subnet)
	if err != nil {
		return 0
	}
	addresses := map[netip.Addr]bool{}
	for _, s := range m.List {
		for _, v := range s.VIPs {
			if addr, err := netip.ParseAddr(v.Address); err == nil && prefix.Contains(addr) {
				addresses[addr] = true
			}
		}
	}
	return len(addresses)
}

func hostPort(address string, port uint16) string {
	addr, err := netip.ParseAddr(address)
	if port == 0 || err != nil {
		return address
	}
	return netip.AddrPortFrom(addr, port).String()
}
