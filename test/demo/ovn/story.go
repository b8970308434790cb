package main

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/test/demo/program"
	"github.com/coe-bridge/coe-bridge/test/demo/screen"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// story is the demo under way.
type story struct {
	screen         *screen.Screen
	listen, bridge string
	rest           rest
	lab            *ovnhost.Lab
	running        []*pod // the pods that are plugged in

	front, cache, back *pod // of namespace web
	cart, till         *pod // of namespace shop
}

func newStory(told *screen.Screen, listen, bridge string) *story {
	const uid = "90d00000-c0e0-4000-8000-00000000000"
	return &story{
		screen: told, listen: listen, bridge: bridge, rest: rest{"http://" + listen},
		front: &pod{namespace: "web", name: "front", uid: uid + "1", host: "host1"},
		cache: &pod{namespace: "web", name: "cache", uid: uid + "2", host: "host1"},
		back:  &pod{namespace: "web", name: "back", uid: uid + "3", host: "host2"},
		cart:  &pod{namespace: "shop", name: "cart", uid: uid + "4", host: "host1"},
		till:  &pod{namespace: "shop", name: "till", uid: uid + "5", host: "host2"},
	}
}

// tell tells the story.
func (s *story) tell(ctx context.Context) error {
	if err := program.Tell(ctx, s.screen, s.steps()); err != nil {
		return err
	}
	s.sayNext()
	return nil
}

func (s *story) steps() []program.Step {
	return []program.Step{
		{Title: "Look for what the demo needs", Do: s.prepare},
		{Title: "Start a central OVN and two hosts, each in a network namespace", Do: s.startLab},
		{Title: "Start coe-bridge with the OVN backend", Do: s.startBridge},
		{Title: "Create a DHCP pool and two nodes", Do: s.createPoolAndNodes},
		{Title: "Create five pods in two namespaces on both hosts, and plug them in", Do: s.createPods},
		{Title: "Look at the Netvirt model", Do: s.showModel},
		{Title: "Ping within a host, across hosts and across namespaces", Do: s.ping},
		{Title: "Attach two pods to a service and fetch a page through its cluster IP", Do: s.attach},
		{Title: "Take the pods out of the service, one after the other", Do: s.takeOut},
		{Title: "Delete the pods one by one: the instances go with their last pod", Do: s.deletePods},
		{Title: "Create a small set again, to look at", Do: s.createAgain},
	}
}

// node is the address of a host as the cluster knows it.
func (s *story) node(host string) netip.Addr { return s.lab.Host(host).Address }

func (s *story) createPoolAndNodes(ctx context.Context) error {
	pool := object{"dhcp_allocation_pool:network": []object{{
		"network-id": "default",
		"allocation-pool": []object{{
			"subnet": "10.42.0.0/16", "allocate-from": "10.42.0.2", "allocate-to": "10.42.255.254", "gateway": "10.42.0.1",
		}},
	}}}
	if err := s.rest.config(ctx, http.MethodPost, "dhcp_allocation_pool:dhcp_allocation_pool/", pool); err != nil {
		return err
	}
	s.screen.Say("pool default: 10.42.0.0/16")
	for i, h := range s.lab.Hosts {
		uid := fmt.Sprintf("40de0000-c0e0-4000-8000-00000000000%d", i+1)
		body := object{"k8s-node:k8s-nodes": []object{{
			"uid": uid, "host-name": h.Name, "internal-ip-address": h.Address.String(),
		}}}
		if err := s.rest.config(ctx, http.MethodPut, "k8s-node:k8s-nodes-info/k8s-nodes/"+uid, body); err != nil {
			return err
		}
		s.screen.Say("node %s: %s", h.Name, h.Address)
	}
	return nil
}

func (s *story) createPods(ctx context.Context) error {
	for _, p := range []*pod{s.front, s.cache, s.back, s.cart, s.till} {
		if err := s.create(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// create posts a pod, reads back what the bridge has chosen for it, and plugs it in.
func (s *story) create(ctx context.Context, p *pod) error {
	if err := s.rest.config(ctx, http.MethodPost, "pod:coe", p.body(s.node(p.host))); err != nil {
		return err
	}
	err := await(ctx, func(ctx context.Context) (err error) {
		p.port, err = s.rest.chosen(ctx, p)
		return err
	})
	if err != nil {
		return err
	}
	if err := s.lab.Plug(ctx, p.port); err != nil {
		return err
	}
	s.running = append(s.running, p)
	s.screen.Say("%-10s on %s: %-12s %s, port %s", p, p.host, p.port.Address.Addr(), p.port.MAC, p.port.PortName)
	return nil
}

func (s *story) showModel(ctx context.Context) error {
	for _, what := range []string{"elan-instances", "vpn-instances", "interfaces"} {
		table, err := s.runBridge(ctx, "get", what)
		if err != nil {
			return err
		}
		s.screen.Say("$ coe-bridge get %s\n%s", what, table)
	}
	return nil
}

func (s *story) ping(ctx context.Context) error {
	for _, way := range []struct {
		what     string
		from, to *pod
	}{
		{"within a host", s.front, s.cache},
		{"across hosts", s.front, s.back},
		{"across namespaces, within a host", s.front, s.cart},
		{"across namespaces and hosts", s.cart, s.back},
	} {
		if err := s.lab.Ping(ctx, way.from.String(), way.to.port.Address.Addr()); err != nil {
			return fmt.Errorf("%s: %w", way.what, err)
		}
		s.screen.Say("%s -> %s (%s): answered", way.from, way.to, way.what)
	}
	return nil
}

// deletePods deletes pod by pod, and looks that exactly the instances and ports are there
// that the pods left need.
func (s *story) deletePods(ctx context.Context) error {
	for _, p := range slices.Clone(s.running) {
		if err := s.delete(ctx, p); err != nil {
			return err
		}
		wantELANs, wantVPNs := s.expected()
		if err := await(ctx, func(ctx context.Context) error { return s.compare(ctx, wantELANs, wantVPNs) }); err != nil {
			return err
		}
		s.screen.Say("%-10s deleted. elan: %s; vpn: %s; its port is gone in OVN", p, list(wantELANs), list(wantVPNs))
	}
	return nil
}

func (s *story) delete(ctx context.Context, p *pod) error {
	if err := s.rest.config(ctx, http.MethodDelete, "pod:coe/pods/"+p.uid, nil); err != nil {
		return err
	}
	s.running = slices.DeleteFunc(s.running, func(r *pod) bool { return r == p })
	return s.lab.Unplug(ctx, p.port)
}

// compare looks for the instances in RESTCONF, and for the ports of the running pods in OVN.
func (s *story) compare(ctx context.Context, wantELANs, wantVPNs []string) error {
	elans, vpns, err := s.rest.instances(ctx)
	if err != nil {
		return err
	}
	if !slices.Equal(elans, wantELANs) || !slices.Equal(vpns, wantVPNs) {
		return fmt.Errorf("RESTCONF shows elan-instances %s and vpn-instances %s: expected %s and %s",
			list(elans), list(vpns), list(wantELANs), list(wantVPNs))
	}
	out, err := s.lab.NBCtl(ctx, "--bare", "--columns=name", "find", "Logical_Switch_Port", `type=""`)
	if err != nil {
		return err
	}
	var ports []string
	for _, name := range strings.Fields(out) {
		if !strings.HasPrefix(name, "node:") {
			ports = append(ports, name)
		}
	}
	var want []string
	for _, p := range s.running {
		want = append(want, p.String())
	}
	slices.Sort(ports)
	slices.Sort(want)
	if !slices.Equal(ports, want) {
		return fmt.Errorf("OVN has ports of pods %s: expected %s", list(ports), list(want))
	}
	return nil
}

func list(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

func (s *story) createAgain(ctx context.Context) error {
	for _, p := range []*pod{s.front, s.till} {
		if err := s.create(ctx, p); err != nil {
			return err
		}
	}
	if err := s.serve(ctx, s.front); err != nil {
		return err
	}
	if err := s.rest.putService(ctx, s.front); err != nil {
		return err
	}
	return s.awaitPages(ctx, s.till, s.front)
}
