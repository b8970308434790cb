package main

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"strings"
)

// services are those that clients sent.
type services struct {
	List []struct {
		UID       string `json:"uid"`
		Name      string `json:"name"`
		Namespace string `json:"network-NS"`
	} `json:"services"`
}

// mappedServices are those that have an address.
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
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	UID       string   `json:"uid"`
	VIPs      []vip    `json:"vips"`
	Problems  []string `json:"problems,omitempty"`
}

func readServices(ctx context.Context, c *client) (table, any, error) {
	var (
		all    services
		mapped mappedServices
		st     status
	)
	if err := c.get(ctx, wanted, "service:service-information", &all); err != nil {
		return table{}, nil, err
	}
	if err := c.get(ctx, wanted, "coe-netvirt:services", &mapped); err != nil {
		return table{}, nil, err
	}
	if err := c.get(ctx, confirmed, "coe-status:status", &st); err != nil {
		return table{}, nil, err
	}
	t := table{
		columns: []string{"NAMESPACE", "NAME", "UID", "ADDRESS", "ENDPOINTS", "PROBLEM"},
		empty:   "no services; coe-bridge apply -f FILE makes some",
	}
	shown := showServices(all, mapped, st)
	for _, s := range shown {
		t.rows = append(t.rows, s.rows()...)
	}
	return t, shown, nil
}

func showServices(all services, mapped mappedServices, st status) []shownService {
	vips := map[string][]vip{}
	for _, m := range mapped.List {
		vips[m.UID] = m.VIPs
	}
	problems := st.reasons()
	shown := []shownService{}
	for _, s := range all.List {
		shown = append(shown, shownService{
			Namespace: namespace(s.Namespace), Name: s.Name, UID: s.UID,
			VIPs: listed(vips[s.UID]), Problems: problems[s.UID],
		})
	}
	slices.SortFunc(shown, func(a, b shownService) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	return shown
}

// rows are one for each address and port, and one for a service that has none.
func (s shownService) rows() [][]string {
	row := func(address, endpoints string) []string {
		return []string{s.Namespace, s.Name, s.UID, address, endpoints, strings.Join(s.Problems, ",")}
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

// within counts the addresses of services that lie in a subnet.
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
