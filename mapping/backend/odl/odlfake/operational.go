package odlfake

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

const operationalRoot = "/restconf/operational"

// Plug adds a port to a switch of the controller. The port has the name that interfaces of the
// configuration name as their parent-interface. The operational datastore then shows the state
// of these interfaces.
func (c *Controller) Plug(port string) { c.plug(port, "up") }

// Down sets the port's link to down.
func (c *Controller) Down(port string) { c.plug(port, "down") }

// Unplug removes the port; without a name, all ports, as if the switches had lost the
// controller.
func (c *Controller) Unplug(ports ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(ports) == 0 {
		c.plugged = map[string]string{}
	}
	for _, port := range ports {
		delete(c.plugged, port)
	}
}

func (c *Controller) plug(port, status string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.plugged[port] = status
}

// operationalKeys holds the lists of the operational datastore, by container, with their keys.
var operationalKeys = map[string][]string{
	"interfaces-state":      {"interface", "name"},
	"elan-state":            {"elan", "name"},
	"vpn-instance-op-data":  {"vpn-instance-op-data-entry", "vrf-id"},
	"vpn-interface-op-data": {"vpn-interface-op-data-entry", "name", "vpn-instance-name"},
	"acl-ports-lookup":      {"acl-ports-by-ip", "acl-name"},
	"l3nexthop":             {"vpnNexthops", "vpnId"}, // it has none
}

// operational answers a request to the operational datastore; path is relative to its root.
func (x *exchange) operational(path string) {
	if !x.acceptable() {
		return
	}
	parts := strings.Split(strings.Trim(path, "/"), "/")
	container, keys := parts[0], []string(nil)
	if len(parts) > 1 && x.draft {
		keys = parts[2:]
	} else if len(parts) > 1 {
		_, joined, _ := strings.Cut(parts[1], "=")
		keys = strings.Split(joined, ",")
	}
	module, name, _ := strings.Cut(container, ":")
	names, known := operationalKeys[name]
	if x.r.Method != http.MethodGet || !known || !x.serves(module) {
		x.fail(http.StatusBadRequest, "unknown-element", "there is nothing of it here")
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	entries := x.states(name)
	if len(keys) == 0 && len(entries) > 0 {
		x.show(x.topName(module, name), map[string]any{names[0]: entries})
		return
	}
	for _, e := range entries {
		if isAt(e, names[1:], keys) {
			x.show(x.topName(module, names[0]), []any{e})
			return
		}
	}
	x.missing()
}

// isAt reports whether an entry has the keys, which are escaped.
func isAt(entry map[string]any, names, keys []string) bool {
	for i, name := range names {
		key, err := url.PathUnescape(keys[min(i, len(keys)-1)])
		if err != nil || len(keys) != len(names) || entry[name] != key {
			return false
		}
	}
	return true
}

// states returns the entries of a container of the operational datastore. The caller holds mu.
func (c *Controller) states(container string) []map[string]any {
	switch container {
	case "interfaces-state":
		return c.interfaceStates()
	case "elan-state":
		return c.elanStates()
	case "vpn-instance-op-data":
		return c.vpnStates()
	case "acl-ports-lookup":
		return c.listStates()
	case "l3nexthop":
		return nil
	}
	return c.vpnMemberStates()
}

// interfaceStates returns the ports, and the interfaces on them.
func (c *Controller) interfaceStates() (all []map[string]any) {
	state := func(name, kind, status string) map[string]any {
		if c.indexes[name] == 0 {
			c.indexes[name] = len(c.indexes) + 1
		}
		return map[string]any{"name": name, "type": kind, "if-index": c.indexes[name], "admin-status": "up", "oper-status": status}
	}
	for _, port := range slices.Sorted(maps.Keys(c.plugged)) {
		all = append(all, state(port, "iana-if-type:other", c.plugged[port]))
	}
	for _, e := range c.all("ietf-interfaces:interfaces") {
		if status := c.status(e.key); status != "" {
			one := state(e.key, "iana-if-type:l2vlan", status)
			one["lower-layer-if"], one["phys-address"] = []string{fmt.Sprintf("openflow:1:%d", len(all)+1)}, "5e:00:00:00:00:01"
			all = append(all, one)
		}
	}
	return all
}

// all returns the entries of a container of the configuration.
func (c *Controller) all(container string) []stored {
	if t := c.tops[container]; t != nil {
		return t.entries
	}
	return nil
}

// status returns the status of an interface's port; empty if it is not plugged in.
func (c *Controller) status(name string) string {
	t := c.tops["ietf-interfaces:interfaces"]
	if t == nil {
		return ""
	}
	i := t.find("interface", name)
	if i < 0 {
		return ""
	}
	port, _ := t.entries[i].value["odl-interface:parent-interface"].(string)
	return c.plugged[port]
}

// elanStates returns every elan-instance, with the interfaces whose ports are plugged in.
func (c *Controller) elanStates() (all []map[string]any) {
	for _, e := range c.all("elan:elan-instances") {
		one := map[string]any{"name": e.key}
		var members []string
		for _, i := range c.all("elan:elan-interfaces") {
			if i.value["elan-instance-name"] == e.key && c.status(i.key) != "" {
				members = append(members, i.key)
			}
		}
		if len(members) > 0 {
			one["elan-interfaces"] = members
		}
		all = append(all, one)
	}
	return all
}

// vpns returns the vpn-instances in operation. If several have the same route distinguisher,
// that is the last.
func (c *Controller) vpns() map[string]string {
	up, holder := map[string]string{}, map[string]string{}
	for _, e := range slices.Concat(c.all("l3vpn:vpn-instances"), c.all(movedModule+":vpn-instances")) {
		from := e.value
		if family, ok := e.value["ipv4-family"].(map[string]any); ok {
			from = family
		}
		distinguishers, _ := from["route-distinguisher"].([]any)
		if len(distinguishers) == 0 {
			continue
		}
		rd, _ := distinguishers[0].(string)
		delete(up, holder[rd])
		holder[rd], up[e.key] = e.key, rd
	}
	return up
}

func (c *Controller) vpnStates() (all []map[string]any) {
	vpns := c.vpns()
	for _, vpn := range slices.Sorted(maps.Keys(vpns)) {
		rd := vpns[vpn]
		one := map[string]any{"vrf-id": rd, "vpn-instance-name": vpn, "vpn-id": 100000 + len(all), "vpn-state": "created", "rd": []string{rd}}
		var members []map[string]any
		for _, m := range c.vpnMemberStates() {
			if m["vpn-instance-name"] == vpn {
				members = append(members, map[string]any{"interface-name": m["name"]})
			}
		}
		if len(members) > 0 {
			one["vpn-to-dpn-list"] = []any{map[string]any{"dpnId": 1, "dpn-state": "active", "vpn-interfaces": members}}
		}
		all = append(all, one)
	}
	return all
}

// vpnMemberStates returns the vpn-interfaces whose ports are plugged in and whose
// vpn-instances are in operation.
func (c *Controller) vpnMemberStates() (all []map[string]any) {
	vpns := c.vpns()
	for _, e := range slices.Concat(c.all("l3vpn:vpn-interfaces"), c.all(movedModule+":vpn-interfaces")) {
		named, _ := e.value["vpn-instance-names"].([]any)
		for _, n := range named {
			one, _ := n.(map[string]any)
			vpn, _ := one["vpn-name"].(string)
			if vpns[vpn] == "" || c.status(e.key) == "" {
				continue
			}
			adjacencies, nested := e.value["odl-l3vpn:adjacency"]
			if !nested {
				adjacencies = e.value["adjacency"] // in the flat form
			}
			all = append(all, map[string]any{
				"name": e.key, "vpn-instance-name": vpn, "scheduled-for-remove": false, "adjacency": adjacencies,
			})
		}
	}
	return all
}
