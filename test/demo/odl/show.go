package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/test/lab/odlpods"
)

// has is what OpenDaylight has of the trees that are ours, as far as it is shown.
type has struct {
	ELANs struct {
		List []struct {
			Name string `json:"elan-instance-name"`
			ID   int    `json:"segmentation-id"`
			Tag  int    `json:"elan-tag"`
		} `json:"elan-instance"`
	} `json:"elan-instances"`
	VPNs struct {
		List []struct {
			Name string `json:"vpn-instance-name"`
			IPv4 struct {
				RD []string `json:"route-distinguisher"`
			} `json:"ipv4-family"`
		} `json:"vpn-instance"`
	} `json:"vpn-instances"`
	VPNInterfaces struct {
		List []struct {
			Name string `json:"name"`
			VPNs []struct {
				Name string `json:"vpn-name"`
			} `json:"vpn-instance-names"`
		} `json:"vpn-interface"`
	} `json:"vpn-interfaces"`
	States struct {
		List []struct {
			Name  string   `json:"name"`
			State string   `json:"oper-status"`
			Below []string `json:"lower-layer-if"`
		} `json:"interface"`
	} `json:"interfaces-state"`
	Routers struct {
		List []struct {
			Name  string `json:"router-id"`
			Ports []struct {
				Name     string `json:"port-name"`
				Mappings []struct {
					External string `json:"external-ip"`
					Internal string `json:"internal-ip"`
				} `json:"internal-to-external-port-map"`
			} `json:"ports"`
		} `json:"router-ports"`
	} `json:"floating-ip-info"`
}

// read reads them from OpenDaylight itself.
func (s *story) read(ctx context.Context) (h has, err error) {
	for _, path := range []string{
		"config/elan:elan-instances", "config/l3vpn:vpn-instances", "config/l3vpn:vpn-interfaces",
		"operational/ietf-interfaces:interfaces-state", "config/odl-nat:floating-ip-info",
	} {
		status, answer, err := s.controller.Request(ctx, http.MethodGet, "/restconf/"+path, "")
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("GET /restconf/%s: %d %s", path, status, answer)
		}
		if err == nil {
			err = json.Unmarshal(answer, &h)
		}
		if err != nil {
			return h, fmt.Errorf("read OpenDaylight's trees: %w", err)
		}
	}
	return h, nil
}

// showTrees shows the bridge's model beside what OpenDaylight has.
func (s *story) showTrees(ctx context.Context) error {
	theirs, err := s.read(ctx)
	if err != nil {
		return err
	}
	for _, t := range []struct{ kind, theirs string }{
		{"elan-instances", theirs.elanInstances()}, {"vpn-instances", theirs.vpnInstances()}, {"interfaces", theirs.interfaces()},
	} {
		ours, err := s.lab.Ask(ctx, "get", t.kind)
		if err != nil {
			return err
		}
		s.screen.Say("%s\n", beside("$ coe-bridge get "+t.kind+"\n"+ours, "OpenDaylight has\n"+t.theirs))
	}
	s.screen.Say("All vpn-interfaces are members of the one vpn-instance transit:100:1, since namespaces are not isolated (docs/decisions/0025-use-case-1-on-opendaylight.md).\n\n")
	return s.showService(ctx, theirs)
}

// showService shows that the service is written, and no more than that.
func (s *story) showService(ctx context.Context, theirs has) error {
	ours, err := s.lab.Ask(ctx, "get", "services")
	if err != nil {
		return err
	}
	s.screen.Say("%s", beside("$ coe-bridge get services\n"+ours, "OpenDaylight has\n"+theirs.floatingIPs()))
	s.screen.Say("Nodes lead pods to the service (docs/decisions/0065-nodes-lead-pods-to-services-on-opendaylight.md). OpenDaylight has it for natservice, which this build lacks.\n\n")
	return s.show(ctx, "status")
}

func (h has) elanInstances() string {
	rows := []string{"NAME                 ID     TAG"}
	for _, e := range h.ELANs.List {
		rows = append(rows, fmt.Sprintf("%-20s %-6d %d", e.Name, e.ID, e.Tag))
	}
	return sorted(rows)
}

func (h has) vpnInstances() string {
	rows := []string{"NAME           RD       MEMBERS"}
	for _, v := range h.VPNs.List {
		var members []string
		for _, i := range h.VPNInterfaces.List {
			for _, in := range i.VPNs {
				if in.Name == v.Name {
					members = append(members, i.Name)
				}
			}
		}
		slices.Sort(members)
		rows = append(rows, fmt.Sprintf("%-14s %-8s %s", v.Name, strings.Join(v.IPv4.RD, ","), strings.Join(members, " ")))
	}
	return sorted(rows)
}

func (h has) interfaces() string {
	rows := []string{"NAME       STATE  PORT OF SWITCH"}
	for _, i := range h.States.List {
		if slices.ContainsFunc(pods, func(p odlpods.Pod) bool { return p.String() == i.Name }) {
			rows = append(rows, fmt.Sprintf("%-10s %-6s %s", i.Name, i.State, strings.Join(i.Below, ",")))
		}
	}
	return sorted(rows)
}

func (h has) floatingIPs() string {
	rows := []string{"ROUTER  PORT        EXTERNAL -> INTERNAL"}
	for _, r := range h.Routers.List {
		for _, p := range r.Ports {
			for _, m := range p.Mappings {
				rows = append(rows, fmt.Sprintf("%-7s %-11s %s -> %s", r.Name, p.Name, m.External, m.Internal))
			}
		}
	}
	return sorted(rows)
}

// sorted are the rows below a heading, in the order of their names.
func sorted(rows []string) string {
	slices.Sort(rows[1:])
	return strings.Join(rows, "\n")
}

// showFlows shows the flows of the tables that carry the pods' packets, on one host.
func (s *story) showFlows(ctx context.Context) error {
	host := s.lab.Hosts[0]
	all, err := s.controller.OpenFlow(ctx, host, "dump-flows")
	if err != nil {
		return err
	}
	s.screen.Say("%s has %d flows, of which these concern the pods:", host.Name, strings.Count(all, "actions="))
	for _, table := range []struct{ number, what string }{
		{"0", "a packet comes in by a port, or a tunnel"},
		{"17", "what is done with it"},
		{"50", "whose MAC address sends it"},
		{"51", "where its elan has the MAC address that it is for"},
		{"21", "where its vpn has the address that it is for"},
		{"220", "it goes out by a port"},
	} {
		flows, err := s.controller.OpenFlow(ctx, host, "dump-flows", "table="+table.number)
		if err != nil {
			return err
		}
		s.screen.Say("table %s: %s\n%s", table.number, table.what, shortened(flows))
	}
	return nil
}

const (
	// flowsShown are the most of a table, flowWidth is the most of a flow.
	flowsShown = 6
	flowWidth  = 170
)

// shortened are some flows of a table, each cut where it is long.
func shortened(flows string) string {
	var rows []string
	for line := range strings.Lines(flows) {
		line = strings.TrimSpace(line)
		if _, what, found := strings.Cut(line, "priority="); found && !strings.HasPrefix(what, "0 ") {
			line = "priority=" + what
			rows = append(rows, "  "+line[:min(len(line), flowWidth)])
		}
	}
	if more := len(rows) - flowsShown; more > 0 {
		rows = append(rows[:flowsShown], fmt.Sprintf("  and %d more", more))
	}
	return strings.Join(rows, "\n")
}
