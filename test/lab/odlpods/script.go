package odlpods

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/coe-bridge/coe-bridge/test/lab/odl"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// Script writes entries of ports without a bridge. It shows what OpenDaylight itself needs.
type Script struct {
	lab    *Lab
	pinged ScriptPort // on the first host
	ports  byte       // how many ports it has made
}

// The vpn-instance of the script's ports, with a route distinguisher that is none of the bridge's, and the segmentation-id of its first
// elan-instance.
const (
	scriptVPN     = "script"
	scriptRD      = "100:65000"
	scriptSegment = 64000
)

// StartScript writes a vpn-instance, an elan-instance for each host, and a port on the first host that further ports ping.
func (l *Lab) StartScript(ctx context.Context, c *odl.Controller) (*Script, error) {
	s := &Script{lab: l}
	entries := []entry{entryOf("l3vpn:vpn-instances", "vpn-instance", scriptVPN, map[string]any{
		"vpn-instance-name": scriptVPN, "type": "l3", "ipv4-family": map[string]any{
			"route-distinguisher": []any{scriptRD}, "vpnTargets": map[string]any{"vpnTarget": []any{map[string]any{"vrfRTValue": scriptRD, "vrfRTType": "both"}}},
		},
	})}
	for i, h := range l.Hosts {
		elan := ScriptPort{host: h}.elan()
		entries = append(entries, entryOf("elan:elan-instances", "elan-instance", elan, map[string]any{
			"elan-instance-name": elan, "segment-type": "elan:segment-type-vxlan", "segmentation-id": scriptSegment + i, "external": false,
		}))
	}
	for _, e := range entries {
		if err := e.put(ctx, c); err != nil {
			return nil, err
		}
	}
	s.pinged = s.port(0)
	return s, s.write(ctx, c, s.pinged)
}

// port returns a new port on a host.
func (s *Script) port(host int) ScriptPort {
	s.ports++
	return ScriptPort{host: s.lab.Hosts[host], network: byte(host + 1), number: 10 + s.ports}
}

// Plug plugs a new port in on the second host, writes its entries as often as OpenDaylight does not accept them, and pings the port on
// the first host until it is answered. accepted is when the last entry was accepted.
func (s *Script) Plug(ctx context.Context, c *odl.Controller) (p ScriptPort, accepted time.Time, err error) {
	p = s.port(1)
	if err := s.write(ctx, c, p); err != nil {
		return p, accepted, err
	}
	accepted = time.Now()
	return p, accepted, s.lab.Answered(ctx, p.name(), s.pinged.address())
}

// Retry is Plug. It replaces a port that is not answered before the deadline of a call, as a runtime calls the plugin again for a pod:
// OpenDaylight can lose a new port of a switch. It calls failed with the error of each port, until ctx ends.
func (s *Script) Retry(ctx context.Context, c *odl.Controller, failed func(error)) (p ScriptPort, accepted time.Time, err error) {
	for {
		p, accepted, err = s.plugInTime(ctx, c)
		if err == nil || ctx.Err() != nil {
			return p, accepted, err
		}
		failed(err)
		if err := s.Unplug(ctx, c, p); err != nil {
			return p, accepted, err
		}
	}
}

func (s *Script) plugInTime(ctx context.Context, c *odl.Controller) (ScriptPort, time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, s.lab.deadline)
	defer cancel()
	return s.Plug(ctx, c)
}

func (s *Script) write(ctx context.Context, c *odl.Controller, p ScriptPort) error {
	if err := s.addLinks(ctx, p); err != nil {
		return err
	}
	for _, e := range p.entries() {
		if err := Await(ctx, func(ctx context.Context) error { return e.put(ctx, c) }); err != nil {
			return err
		}
	}
	return nil
}

// addLinks creates the links of a port in a sandbox of its own, and adds it to the switch. Links of package links would be leftovers for
// the agents, which remove them.
func (s *Script) addLinks(ctx context.Context, p ScriptPort) error {
	if _, err := s.lab.Sandbox(ctx, p.name()); err != nil {
		return err
	}
	for _, command := range []struct{ at, text string }{
		{p.host.Name, fmt.Sprintf("link add %s type veth peer name eth0 address %s mtu 1400 netns %s", p.link(), p.mac(), s.lab.Namespace(p.name()))},
		{p.host.Name, fmt.Sprintf("link set %s up", p.link())},
		{p.name(), fmt.Sprintf("address add %s/24 dev eth0", p.address())},
		{p.name(), "link set eth0 up"},
		{p.name(), fmt.Sprintf("route add default via %s", p.gateway())},
	} {
		if _, err := s.lab.Exec(ctx, command.at, append([]string{"ip"}, strings.Fields(command.text)...)...); err != nil {
			return err
		}
	}
	_, err := p.host.VSCtl(ctx, "add-port", odl.Bridge, p.link(), "--", "set", "Interface", p.link(),
		fmt.Sprintf("external_ids:iface-id=%q", p.name()), fmt.Sprintf("external_ids:attached-mac=%q", p.mac()))
	return err
}

// Unplug removes a port and its entries.
func (s *Script) Unplug(ctx context.Context, c *odl.Controller, p ScriptPort) error {
	for _, e := range slices.Backward(p.entries()) {
		if err := Await(ctx, func(ctx context.Context) error { return e.delete(ctx, c) }); err != nil {
			return err
		}
	}
	if _, err := p.host.VSCtl(ctx, "--if-exists", "del-port", odl.Bridge, p.link()); err != nil {
		return err
	}
	return s.lab.RemoveSandbox(ctx, p.name())
}

// ScriptPort is a port of a Script.
type ScriptPort struct {
	host            *ovnhost.Host
	network, number byte // in its address; the number is that of one port of the script
}

func (p ScriptPort) name() string { return fmt.Sprintf("script:%d", p.number) }
func (p ScriptPort) elan() string { return "script-" + p.host.Name }
func (p ScriptPort) link() string { return fmt.Sprintf("tapffff0000-%02x", p.number) }

func (p ScriptPort) address() netip.Addr {
	return netip.AddrFrom4([4]byte{10, 43, p.network, p.number})
}
func (p ScriptPort) gateway() netip.Addr { return netip.AddrFrom4([4]byte{10, 43, p.network, 1}) }

func (p ScriptPort) mac() net.HardwareAddr {
	return append(net.HardwareAddr{0x0a, 0x58}, p.address().AsSlice()...)
}

// entries returns the entries of the port, in the order in which they are written.
func (p ScriptPort) entries() []entry {
	return []entry{
		entryOf("ietf-interfaces:interfaces", "interface", p.name(), map[string]any{
			"name": p.name(), "type": "iana-if-type:l2vlan", "enabled": true, "odl-interface:l2vlan-mode": "trunk", "odl-interface:parent-interface": p.link(),
		}),
		entryOf("elan:elan-interfaces", "elan-interface", p.name(), map[string]any{
			"name": p.name(), "elan-instance-name": p.elan(), "static-mac-entries": []any{map[string]any{"mac-address": p.mac().String(), "ip-prefix": p.address()}},
		}),
		entryOf("l3vpn:vpn-interfaces", "vpn-interface", p.name(), map[string]any{
			"name": p.name(), "router-interface": false,
			"vpn-instance-names": []any{map[string]any{"vpn-name": scriptVPN, "associated-subnet-type": "V4Subnet"}},
			"odl-l3vpn:adjacency": []any{map[string]any{
				"ip_address": p.address().String() + "/32", "mac_address": p.mac().String(), "adjacency_type": "primary-adjacency",
				"subnet_id": fmt.Sprintf("b498b7ae-4cbd-3563-b75d-7eaf4445%04d", p.network), "subnet_gateway_ip": p.gateway(),
			}},
		}),
	}
}

// entry is an entry of a list in the config datastore.
type entry struct {
	path string
	body map[string]any
}

func entryOf(container, list, key string, body map[string]any) entry {
	return entry{fmt.Sprintf("/restconf/config/%s/%s/%s", container, list, url.QueryEscape(key)), map[string]any{list: []any{body}}}
}

func (e entry) put(ctx context.Context, c *odl.Controller) error {
	body, err := json.Marshal(e.body)
	if err != nil {
		return fmt.Errorf("write %s: %w", e.path, err)
	}
	return e.send(ctx, c, http.MethodPut, string(body))
}

// delete deletes the entry. It is not an error if it does not exist.
func (e entry) delete(ctx context.Context, c *odl.Controller) error {
	return e.send(ctx, c, http.MethodDelete, "")
}

func (e entry) send(ctx context.Context, c *odl.Controller, method, body string) error {
	status, answer, err := c.Request(ctx, method, e.path, body)
	if err == nil && status/100 != 2 && (method != http.MethodDelete || status != http.StatusNotFound) {
		err = fmt.Errorf("%s %s: %d: %s", method, e.path, status, answer)
	}
	return err
}
