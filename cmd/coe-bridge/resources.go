package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

func resources() []resource {
	return []resource{
		{"elan-instances", "Layer 2 networks: one for each namespace on each node", readELANInstances},
		{"vpn-instances", "Layer 3 networks: one for each namespace", readVPNInstances},
		{"interfaces", "Pods' interfaces, and whether the backend has them", readInterfaces},
		{"pods", "Pods as clients sent them, with address and state", readPods},
		{"services", "Services, with their addresses and endpoints", readServices},
		{"pools", "DHCP pools, and how much of them is in use", readPools},
		{"leases", "Addresses that were handed out", readLeases},
		{"problems", "What can't be mapped now, why, and what would mend it", readProblems},
	}
}

type elanInstances struct {
	List []struct {
		Name    string `json:"elan-instance-name"`
		Segment string `json:"segment-type"`
		ID      uint32 `json:"segmentation-id"`
	} `json:"elan-instance"`
}

func readELANInstances(ctx context.Context, c *client) (table, any, error) {
	const top = "elan:elan-instances"
	var want, have elanInstances
	if err := getBoth(ctx, c, top, &want, &have); err != nil {
		return table{}, nil, err
	}
	there := map[string]bool{}
	for _, e := range have.List {
		there[e.Name] = true
	}
	t := table{columns: []string{"NAME", "SEGMENT", "ID", "CONFIRMED"}, empty: "no elan-instances: no pod is mapped"}
	for _, e := range want.List {
		segment := e.Segment[strings.LastIndexByte(e.Segment, '-')+1:]
		t.rows = append(t.rows, []string{e.Name, segment, fmt.Sprint(e.ID), yes(there[e.Name])})
	}
	return t, want.List, nil
}

type vpnInstances struct {
	List []struct {
		Name   string `json:"vpn-instance-name"`
		Family struct {
			RD      []string `json:"route-distinguisher"`
			Targets struct {
				List []struct {
					Value string `json:"vrfRTValue"`
					Type  string `json:"vrfRTType"`
				} `json:"vpnTarget"`
			} `json:"vpnTargets"`
		} `json:"ipv4-family"`
	} `json:"vpn-instance"`
}

func readVPNInstances(ctx context.Context, c *client) (table, any, error) {
	const top = "l3vpn:vpn-instances"
	var want, have vpnInstances
	if err := getBoth(ctx, c, top, &want, &have); err != nil {
		return table{}, nil, err
	}
	there := map[string]bool{}
	for _, v := range have.List {
		there[v.Name] = true
	}
	t := table{columns: []string{"NAME", "RD", "TARGETS", "CONFIRMED"}, empty: "no vpn-instances: no pod is mapped"}
	for _, v := range want.List {
		var targets []string
		for _, target := range v.Family.Targets.List {
			targets = append(targets, target.Value)
		}
		t.rows = append(t.rows, []string{
			v.Name, strings.Join(v.Family.RD, ","), strings.Join(targets, ","), yes(there[v.Name]),
		})
	}
	return t, want.List, nil
}

type interfaces struct {
	List []struct {
		Name   string `json:"name"`
		Parent string `json:"odl-interface:parent-interface"`
	} `json:"interface"`
}

type elanInterfaces struct {
	List []struct {
		Name string `json:"name"`
		ELAN string `json:"elan-instance-name"`
		MACs []struct {
			MAC     string `json:"mac-address"`
			Address string `json:"ip-prefix"`
		} `json:"static-mac-entries"`
	} `json:"elan-interface"`
}

// shownInterface is a row of coe-bridge get interfaces.
type shownInterface struct {
	Name      string   `json:"name"`
	ELAN      string   `json:"elan-instance-name"`
	MAC       string   `json:"mac-address"`
	Addresses []string `json:"addresses"`
	Port      string   `json:"parent-interface"`
	Confirmed bool     `json:"confirmed"`
}

func readInterfaces(ctx context.Context, c *client) (table, any, error) {
	var want interfaces
	var elan, have elanInterfaces
	if err := c.get(ctx, wanted, "ietf-interfaces:interfaces", &want); err != nil {
		return table{}, nil, err
	}
	if err := getBoth(ctx, c, "elan:elan-interfaces", &elan, &have); err != nil {
		return table{}, nil, err
	}
	ports := map[string]string{}
	for _, i := range want.List {
		ports[i.Name] = i.Parent
	}
	there := map[string]bool{}
	for _, i := range have.List {
		there[i.Name] = true
	}
	shown := []shownInterface{}
	t := table{
		columns: []string{"NAME", "ELAN", "MAC", "ADDRESSES", "PORT", "CONFIRMED"},
		empty:   "no interfaces: no pod is mapped",
	}
	for _, i := range elan.List {
		one := shownInterface{Name: i.Name, ELAN: i.ELAN, Port: ports[i.Name], Confirmed: there[i.Name]}
		for _, m := range i.MACs {
			one.MAC = m.MAC
			one.Addresses = append(one.Addresses, m.Address)
		}
		shown = append(shown, one)
		t.rows = append(t.rows, []string{
			one.Name, one.ELAN, one.MAC, strings.Join(one.Addresses, ","), one.Port, yes(one.Confirmed),
		})
	}
	return t, shown, nil
}

type leases struct {
	List []lease `json:"lease"`
}

type lease struct {
	PodUID       string   `json:"pod-uid"`
	InterfaceUID string   `json:"interface-uid"`
	Name         string   `json:"interface-name"`
	Namespace    string   `json:"namespace"`
	Pod          string   `json:"pod"`
	Node         string   `json:"node"`
	MAC          string   `json:"mac-address"`
	Addresses    []string `json:"ip-address"`
	Network      []string `json:"network"`
	Released     string   `json:"released,omitempty"`
}

func readLeases(ctx context.Context, c *client) (table, any, error) {
	var all leases
	if err := c.get(ctx, confirmed, "coe-status:leases", &all); err != nil {
		return table{}, nil, err
	}
	t := table{
		columns: []string{"INTERFACE", "ADDRESS", "BLOCK", "MAC", "NODE", "RELEASED"},
		empty:   "no leases: no pod has an address",
	}
	for _, l := range all.List {
		t.rows = append(t.rows, []string{
			l.Name, strings.Join(l.Addresses, ","), strings.Join(l.Network, ","), l.MAC, l.Node, l.Released,
		})
	}
	return t, all.List, nil
}

type pods struct {
	List []pod `json:"pods"`
}

type pod struct {
	UID       string `json:"uid"`
	Name      string `json:"name,omitempty"`
	Namespace string `json:"network-NS,omitempty"`
	Node      string `json:"host-ip-address,omitempty"`
	Interface []struct {
		UID     string `json:"uid"`
		Address string `json:"ip-address,omitempty"`
	} `json:"interface,omitempty"`
}

// shownPod is a row of coe-bridge get pods.
type shownPod struct {
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	UID       string   `json:"uid"`
	Node      string   `json:"node"`
	Addresses []string `json:"addresses"`
	Source    string   `json:"source"`
	State     string   `json:"state"`
	Problems  []string `json:"problems,omitempty"`
}

func readPods(ctx context.Context, c *client) (table, any, error) {
	var (
		all   pods
		given leases
		have  elanInterfaces
		st    status
	)
	if err := c.get(ctx, wanted, "pod:coe", &all); err != nil {
		return table{}, nil, err
	}
	if err := c.get(ctx, confirmed, "coe-status:leases", &given); err != nil {
		return table{}, nil, err
	}
	if err := c.get(ctx, confirmed, "elan:elan-interfaces", &have); err != nil {
		return table{}, nil, err
	}
	if err := c.get(ctx, confirmed, "coe-status:status", &st); err != nil {
		return table{}, nil, err
	}
	shown := showPods(all, given, have, st)
	t := table{
		columns: []string{"NAMESPACE", "NAME", "UID", "NODE", "ADDRESS", "SOURCE", "STATE"},
		empty:   "no pods; POST one to /restconf/config/pod:coe",
	}
	for _, p := range shown {
		state := p.State
		if len(p.Problems) > 0 {
			state += ": " + p.Problems[0]
		}
		t.rows = append(t.rows, []string{
			p.Namespace, p.Name, p.UID, p.Node, strings.Join(p.Addresses, ","), p.Source, state,
		})
	}
	return t, shown, nil
}

func showPods(all pods, given leases, have elanInterfaces, st status) []shownPod {
	there := map[string]bool{}
	for _, i := range have.List {
		there[i.Name] = true
	}
	byPod := map[string][]lease{}
	for _, l := range given.List {
		if l.Released == "" {
			byPod[l.PodUID] = append(byPod[l.PodUID], l)
		}
	}
	problems := map[string][]string{}
	for _, p := range st.Problems {
		problems[p.UID] = append(problems[p.UID], p.Reason)
	}
	shown := []shownPod{}
	for _, p := range all.List {
		one := shownPod{
			Namespace: p.Namespace, Name: p.Name, UID: p.UID, Node: p.Node,
			Source: "restconf", State: "waiting", Problems: problems[p.UID],
		}
		if one.Namespace == "" {
			one.Namespace = "default"
		}
		confirmed := len(byPod[p.UID]) > 0
		for _, l := range byPod[p.UID] {
			one.Addresses = append(one.Addresses, l.Addresses...)
			confirmed = confirmed && there[l.Name]
		}
		switch {
		case confirmed:
			one.State = "confirmed"
		case len(one.Problems) > 0:
			one.State = "problem"
		}
		shown = append(shown, one)
	}
	return shown
}

type services struct {
	List []struct {
		UID       string `json:"uid"`
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
		VIPs      []struct {
			Protocol  string `json:"protocol"`
			Address   string `json:"address"`
			Port      uint16 `json:"port"`
			Endpoints []struct {
				Address string `json:"address"`
				Port    uint16 `json:"port"`
			} `json:"endpoint"`
		} `json:"vip"`
	} `json:"service"`
}

func readServices(ctx context.Context, c *client) (table, any, error) {
	var all services
	if err := c.get(ctx, wanted, "coe-netvirt:services", &all); err != nil {
		return table{}, nil, err
	}
	t := table{
		columns: []string{"NAMESPACE", "NAME", "UID", "ADDRESS", "ENDPOINTS"},
		empty:   "no services with an address; POST one to /restconf/config/service:service-information",
	}
	for _, s := range all.List {
		for _, v := range s.VIPs {
			var endpoints []string
			for _, e := range v.Endpoints {
				endpoints = append(endpoints, hostPort(e.Address, e.Port))
			}
			t.rows = append(t.rows, []string{
				s.Namespace, s.Name, s.UID, v.Protocol + " " + hostPort(v.Address, v.Port), strings.Join(endpoints, ","),
			})
		}
	}
	return t, all.List, nil
}

func hostPort(address string, port uint16) string {
	if port == 0 {
		return address
	}
	if strings.Contains(address, ":") {
		address = "[" + address + "]"
	}
	return address + ":" + strconv.Itoa(int(port))
}

type pools struct {
	Networks []struct {
		ID    string `json:"network-id"`
		Pools []struct {
			Subnet  string   `json:"subnet"`
			From    string   `json:"allocate-from,omitempty"`
			To      string   `json:"allocate-to,omitempty"`
			Gateway string   `json:"gateway,omitempty"`
			DNS     []string `json:"dns-servers,omitempty"`
		} `json:"allocation-pool,omitempty"`
		Allocations []struct {
			Subnet string `json:"subnet"`
			Given  []struct {
				MAC     string `json:"mac"`
				Address string `json:"allocated-ip"`
			} `json:"allocation-instance"`
		} `json:"allocations,omitempty"`
	} `json:"network"`
}

func readPools(ctx context.Context, c *client) (table, any, error) {
	var all pools
	if err := c.get(ctx, confirmed, "dhcp_allocation_pool:dhcp_allocation_pool", &all); err != nil {
		return table{}, nil, err
	}
	t := table{
		columns: []string{"NETWORK", "SUBNET", "FROM", "TO", "GATEWAY", "IN USE"},
		empty:   "no pools; POST one to /restconf/config/dhcp_allocation_pool:dhcp_allocation_pool",
	}
	for _, n := range all.Networks {
		used := map[string]int{}
		for _, a := range n.Allocations {
			used[a.Subnet] = len(a.Given)
		}
		for _, p := range n.Pools {
			t.rows = append(t.rows, []string{n.ID, p.Subnet, p.From, p.To, p.Gateway, strconv.Itoa(used[p.Subnet])})
		}
	}
	return t, all.Networks, nil
}

func readProblems(ctx context.Context, c *client) (table, any, error) {
	var st status
	if err := c.get(ctx, confirmed, "coe-status:status", &st); err != nil {
		return table{}, nil, err
	}
	t := table{columns: []string{"NAMESPACE", "KIND", "NAME", "UID", "REASON", "MESSAGE"}, empty: "no problems"}
	for _, p := range st.Problems {
		t.rows = append(t.rows, []string{p.Namespace, p.Kind, p.Name, p.UID, p.Reason, p.Message})
	}
	return t, st.Problems, nil
}

// getBoth reads a tree as it is wanted and as the backend has confirmed it.
func getBoth(ctx context.Context, c *client, top string, want, have any) error {
	if err := c.get(ctx, wanted, top, want); err != nil {
		return err
	}
	return c.get(ctx, confirmed, top, have)
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
