package story_test

import (
	"regexp"
	"strings"
)

// trees has the confirmed trees, with the data that a story's model contains.
type trees struct {
	elans struct {
		List []struct {
			Name string `json:"elan-instance-name"`
		} `json:"elan-instance"`
	}
	vpns struct {
		List []struct {
			Name string `json:"vpn-instance-name"`
		} `json:"vpn-instance"`
	}
	interfaces struct {
		List []struct {
			Name string `json:"name"`
		} `json:"interface"`
	}
	elanInterfaces struct {
		List []struct {
			Name string `json:"name"`
			ELAN string `json:"elan-instance-name"`
			MACs []struct {
				MAC string `json:"mac-address"`
			} `json:"static-mac-entries"`
		} `json:"elan-interface"`
	}
	vpnInterfaces struct {
		List []struct {
			Name string `json:"name"`
			VPNs []struct {
				Name string `json:"vpn-name"`
			} `json:"vpn-instance-names"`
			Adjacencies []struct {
				Address string `json:"ip_address"`
			} `json:"odl-l3vpn:adjacency"`
		} `json:"vpn-interface"`
	}
	floating struct {
		Routers []struct {
			ID    string `json:"router-id"`
			Ports []struct {
				Name string `json:"port-name"`
				Map  []struct {
					External string `json:"external-ip"`
				} `json:"internal-to-external-port-map"`
			} `json:"ports"`
		} `json:"router-ports"`
	}
	services struct {
		List []struct {
			Name string `json:"name"`
			VIPs []struct {
				Address   string     `json:"address"`
				Endpoints []struct{} `json:"endpoint"`
			} `json:"vip"`
		} `json:"service"`
	}
}

// model lists the confirmed objects, "kind name".
func (l *teller) model() []string {
	var t trees
	l.bridge.Get("operational/elan:elan-instances", &t.elans)
	l.bridge.Get("operational/l3vpn:vpn-instances", &t.vpns)
	l.bridge.Get("operational/ietf-interfaces:interfaces", &t.interfaces)
	l.bridge.Get("operational/elan:elan-interfaces", &t.elanInterfaces)
	l.bridge.Get("operational/l3vpn:vpn-interfaces", &t.vpnInterfaces)
	l.bridge.Get("operational/odl-nat:floating-ip-info", &t.floating)
	l.bridge.Get("operational/coe-netvirt:services", &t.services)
	var lines []string
	add := func(words ...string) { lines = append(lines, strings.Join(words, " ")) }
	for _, e := range t.elans.List {
		add("elan-instance", e.Name)
	}
	for _, v := range t.vpns.List {
		add("vpn-instance", v.Name)
	}
	for _, i := range t.interfaces.List {
		add("interface", i.Name)
	}
	for _, i := range t.elanInterfaces.List {
		add("elan-interface", i.Name, "in", i.ELAN)
		for range i.MACs {
			add("static-mac-entry", i.Name, "*")
		}
	}
	for _, i := range t.vpnInterfaces.List {
		for _, v := range i.VPNs {
			add("vpn-interface", i.Name, "in", v.Name)
		}
		for range i.Adjacencies {
			add("adjacency", i.Name, "*")
		}
	}
	for _, r := range t.floating.Routers {
		for _, p := range r.Ports {
			for _, m := range p.Map {
				add("floating-ip", r.ID, p.Name, "from", m.External)
			}
		}
	}
	for _, s := range t.services.List {
		for _, v := range s.VIPs {
			add("service-vip", s.Name, v.Address, strings.Repeat("*", len(v.Endpoints)))
		}
	}
	for i, line := range lines {
		lines[i] = strings.TrimSpace(line)
	}
	return lines
}

// problems lists the problems, "kind name reason".
func (l *teller) problems() []string {
	var lines []string
	for _, p := range l.bridge.Status().Problems {
		lines = append(lines, p.Kind+" "+p.Name+" "+p.Reason)
	}
	return lines
}

// chosenBlock matches the block in a row's name. The block depends on the order of events.
var chosenBlock = regexp.MustCompile(`/[0-9.]+/[0-9]+$`)

// rows lists the rows of coe-bridge in the northbound database, "table name".
func (l *teller) rows() []string {
	l.t.Helper()
	var lines []string
	for _, table := range []string{
		"Logical_Switch", "Logical_Switch_Port", "Logical_Router", "Logical_Router_Port", "Load_Balancer",
	} {
		names := l.nb.NBCtl(l.t, "--format=csv", "--data=bare", "--no-headings", "--columns=name", "list", table)
		for _, name := range strings.Fields(names) {
			lines = append(lines, table+" "+chosenBlock.ReplaceAllString(name, "/*"))
		}
	}
	return lines
}
