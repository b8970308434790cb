package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/coe-bridge/coe-bridge/test/demo/program"
	"github.com/coe-bridge/coe-bridge/test/demo/screen"
	"github.com/coe-bridge/coe-bridge/test/lab/odl"
	"github.com/coe-bridge/coe-bridge/test/lab/odlpods"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// callDeadline is that of the agents' calls, on a machine that may be busy with Java.
const callDeadline = 2 * time.Minute

// story is the demo under way.
type story struct {
	screen     *screen.Screen
	bin        string
	release    odl.Release
	controller *odl.Controller
	lab        *odlpods.Lab
	pods       []odlpods.Plugged
}

// The pods of the story: two of one namespace, and two of others.
var pods = []odlpods.Pod{
	{Namespace: "web", Name: "front", Host: "host1", UID: "90d00000-c0e0-4000-8000-000000000001"},
	{Namespace: "web", Name: "back", Host: "host2", UID: "90d00000-c0e0-4000-8000-000000000002"},
	{Namespace: "shop", Name: "cart", Host: "host1", UID: "90d00000-c0e0-4000-8000-000000000003"},
	{Namespace: "bank", Name: "till", Host: "host2", UID: "90d00000-c0e0-4000-8000-000000000004"},
}

// service is one that the first two pods serve.
const service = `service:services:
- uid: 5e55101e-c0e0-4000-8000-000000000001
  name: page
  network-NS: web
  cluster-ip-address: 10.96.0.10
  service-ports: [{name: http, port: 80, target-port: "8080"}]
  endpoints: [90d00000-c0e0-4000-8000-000000000001, 90d00000-c0e0-4000-8000-000000000002]
`

// tell tells the story.
func (s *story) tell(ctx context.Context) error {
	err := program.Tell(ctx, s.screen, []program.Step{
		{Title: "Look for what the demo needs", Do: s.prepare},
		{Title: "Start OpenDaylight, and two hosts with Open vSwitch, in network namespaces", Do: s.startController},
		{Title: "Start coe-bridge with the OpenDaylight backend", Do: s.startBridge},
		{Title: "Start an agent on each host: its switch becomes OpenDaylight's", Do: s.startAgents},
		{Title: "Post four pods of three namespaces, and a service", Do: s.post},
		{Title: "Plug the pods in by the CNI plugin", Do: s.plug},
		{Title: "Look at the model, and at what OpenDaylight has of it", Do: s.showTrees},
		{Title: "Look at the flows that OpenDaylight has programmed", Do: s.showFlows},
		{Title: "Ping within a namespace and across namespaces, on one host and on two", Do: s.ping},
	})
	if err != nil {
		return err
	}
	return s.sayNext()
}

// prepare installs what is missing, the release of OpenDaylight too, and removes an
// earlier demo.
func (s *story) prepare(ctx context.Context) error {
	if err := program.InstallPackages(ctx, s.screen, odl.Missing); err != nil {
		return err
	}
	if ovnhost.Exists(prefix) {
		s.screen.Say("an earlier demo is there: it is removed first")
		if err := odl.Cleanup(prefix); err != nil {
			return err
		}
	}
	installed, err := odl.Install(ctx, s.release, os.Stdout)
	if err == nil {
		s.screen.Say("OpenDaylight %s is in %s", s.release, installed.Karaf)
	}
	return err
}

func (s *story) startController(ctx context.Context) error {
	lab, err := ovnhost.Start(ctx, ovnhost.Config{Prefix: prefix, Hosts: []string{"host1", "host2"}, SwitchesOnly: true, Survive: true})
	if err != nil {
		return err
	}
	for _, h := range lab.Hosts {
		s.screen.Say("%s: address %s, namespace %s", h.Name, h.Address, lab.Namespace(h.Name))
	}
	s.screen.Say("OpenDaylight starts; that takes half a minute, or some on a busy machine")
	s.controller, err = odl.Start(ctx, odl.Config{Lab: lab, Release: s.release, Progress: os.Stdout})
	return err
}

func (s *story) startBridge(ctx context.Context) (err error) {
	s.lab, err = odlpods.New(ctx, odlpods.Config{Controller: s.controller, Bin: s.bin, CallDeadline: callDeadline})
	if err != nil {
		return err
	}
	if err := s.lab.StartBridge(ctx, "none"); err != nil {
		return err
	}
	if err := s.lab.ApplyNodes(ctx); err != nil {
		return err
	}
	return s.show(ctx, "status")
}

func (s *story) startAgents(ctx context.Context) error {
	if err := s.lab.StartAgents(ctx); err != nil {
		return err
	}
	if err := s.lab.AwaitNetwork(ctx); err != nil {
		return err
	}
	for _, h := range s.lab.Hosts {
		out, err := h.VSCtl(ctx, "--columns=target,is_connected", "list", "Manager")
		if err != nil {
			return err
		}
		s.screen.Say("%s$ ovs-vsctl list Manager\n%s", h.Name, strings.TrimSpace(out))
	}
	tunnels, err := s.lab.Hosts[0].VSCtl(ctx, "--columns=name,type,options", "find", "Interface", "type=vxlan")
	if err != nil {
		return err
	}
	s.screen.Say("host1$ ovs-vsctl find Interface type=vxlan\n%s", strings.TrimSpace(tunnels))
	return nil
}

func (s *story) post(ctx context.Context) error {
	if err := s.lab.ApplyPods(ctx, pods...); err != nil {
		return err
	}
	if err := s.lab.Apply(ctx, "service", service); err != nil {
		return err
	}
	return s.show(ctx, "get", "pods")
}

func (s *story) plug(ctx context.Context) error {
	for _, p := range pods {
		begun := time.Now()
		plugged, err := s.lab.Plug(ctx, p)
		if err != nil {
			return err
		}
		s.pods = append(s.pods, plugged)
		s.screen.Say("CNI ADD %-10s on %s: %-12s port %s, after %s", p, p.Host, plugged.Address, plugged.Port(), time.Since(begun).Round(10*time.Millisecond))
	}
	return s.show(ctx, "trace", "web/front")
}

// show shows a command that asks the bridge, and what it prints.
func (s *story) show(ctx context.Context, args ...string) error {
	out, err := s.lab.Ask(ctx, args...)
	if err != nil {
		return err
	}
	s.screen.Say("$ coe-bridge %s\n%s", strings.Join(args, " "), out)
	return nil
}

func (s *story) ping(ctx context.Context) error {
	front, back, cart, till := s.pods[0], s.pods[1], s.pods[2], s.pods[3]
	for _, way := range []struct {
		what     string
		from, to odlpods.Plugged
	}{
		{"within a namespace, across hosts", front, back},
		{"across namespaces, within a host", front, cart},
		{"across namespaces, within the other host", back, till},
		{"across namespaces and hosts", cart, till},
	} {
		for _, ends := range [][]odlpods.Plugged{{way.from, way.to}, {way.to, way.from}} {
			if err := s.lab.Reach(ctx, ends[0].Pod, ends[1].Address); err != nil {
				return fmt.Errorf("%s: %w", way.what, err)
			}
		}
		s.screen.Say("%s <-> %s (%s): answered", way.from, way.to, way.what)
	}
	out, err := s.lab.Exec(ctx, front.String(), "ping", "-n", "-c", "3", "-i", "0.3", back.Address.String())
	if err != nil {
		return err
	}
	s.screen.Say("%s$ ping -c 3 %s\n%s", front, back.Address, strings.TrimSpace(out))
	return nil
}

// sayNext says what to try now.
func (s *story) sayNext() error {
	bridge, controller, err := s.lab.WriteWrappers()
	if err != nil {
		return err
	}
	host := s.lab.Hosts[0]
	s.screen.Say(`all is left running. Try:
  %[1]s status
  %[1]s get interfaces
  %[2]s /restconf/config/elan:elan-instances
  %[2]s /restconf/operational/ietf-interfaces:interfaces-state/interface/%[3]s
  ip netns exec %[4]s ping -c 3 %[5]s
  ovs-vsctl --db=%[6]s show
  ovs-ofctl -O OpenFlow13 dump-flows unix:%[7]s/br-int.mgmt
  make demo-odl-down`,
		bridge, controller, strings.ReplaceAll(s.pods[0].String(), ":", "%3A"), s.lab.Namespace(s.pods[0].String()), s.pods[3].Address, host.OVSDB.Remote, host.Dir)
	return nil
}

// beside puts a text to the right of another.
func beside(left, right string) string {
	l, r := strings.Split(strings.TrimSpace(left), "\n"), strings.Split(strings.TrimSpace(right), "\n")
	width := 0
	for _, line := range l {
		width = max(width, len(line))
	}
	for len(l) < len(r) {
		l = append(l, "")
	}
	r = append(r, slices.Repeat([]string{""}, len(l)-len(r))...)
	var both strings.Builder
	for i := range l {
		fmt.Fprintf(&both, "%-*s  | %s\n", width, l[i], r[i])
	}
	return both.String()
}
