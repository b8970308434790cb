package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/coe-bridge/coe-bridge/test/bench/figures"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

const (
	// runs is the number of runs of each of two ways, which alternate.
	runs = 10
	// least bounds the throughput, and most the latency, in relation to the manual setup.
	least, most = 0.9, 1.1
	otherHost   = "host2"
)

// way is a way from a pod on one host to a pod on the other.
type way struct {
	name     string
	from, to string // the names of the pods in the lab
	address  netip.Addr
	port     string // of the first pod, on the switch of the first host
	rates    []float64
	times    []time.Duration // the median round trip of each run
}

// measureTraffic sends traffic between pods that our plugin has plugged in. It alternates with
// pods whose links, ports and rows were made by hand.
func measureTraffic(ctx context.Context, b *bench) (all []figures.Figure, err error) {
	w, err := newWorld(ctx, b, host, otherHost)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	ours, remove, err := w.wireOurs(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	byHand, err := w.wireByHand(ctx)
	if err != nil {
		return nil, err
	}
	actions, err := w.sameActions(ctx, ours, byHand)
	if err != nil {
		return nil, err
	}
	for i := range runs {
		for _, one := range []*way{ours, byHand} {
			if err := w.run(ctx, one); err != nil {
				return nil, fmt.Errorf("%s: %w", one.name, err)
			}
		}
		b.say("run %d: %.2f and %.2f Gbit/s, %s and %s", i+1, ours.rates[i], byHand.rates[i], figures.Short(ours.times[i]), figures.Short(byHand.times[i]))
	}
	slices.Sort(ours.times)
	slices.Sort(byHand.times)
	slices.Sort(ours.rates)
	slices.Sort(byHand.rates)
	rate, hand := ours.rates[runs/2], byHand.rates[runs/2]
	latency, byHandLatency := ours.times[runs/2], byHand.times[runs/2]
	return []figures.Figure{
		actions,
		figures.Rate(fmt.Sprintf("throughput pod to pod across nodes, median of %d runs; wired by hand: %.2f Gbit/s", runs, hand),
			fmt.Sprintf("%.2f Gbit/s, %.2f of it", rate, rate/hand), rate/hand, least),
		figures.AtMost(fmt.Sprintf("round trip pod to pod across nodes, median of %d runs; wired by hand: %s", runs, figures.Short(byHandLatency)),
			latency, time.Duration(most*float64(byHandLatency))),
	}, nil
}

// wireOurs plugs a pod in on each host.
func (w *world) wireOurs(ctx context.Context) (_ *way, remove func() error, err error) {
	var names []string
	var addresses []netip.Addr
	for i, on := range []string{host, otherHost} {
		s := w.sandbox("3", i)
		names = append(names, s.netns)
		if err := addNamespaces(s.netns); err != nil {
			return nil, nil, err
		}
		if err := w.post(ctx, on, "3", i); err != nil {
			return nil, nil, err
		}
		if _, err := w.plugin(on).each(ctx, "ADD", []sandbox{s}, nil); err != nil {
			return nil, nil, err
		}
		address, err := addressIn(ctx, s.netns)
		if err != nil {
			return nil, nil, err
		}
		addresses = append(addresses, address)
	}
	port, err := w.lab.Host(host).VSCtl(ctx, "--bare", "--columns=name", "find", "Interface", "external_ids:iface-id-ver="+uid("3", 0))
	inLab := func(name string) string { return strings.TrimPrefix(name, prefix+"-") }
	return &way{name: "ours", from: inLab(names[0]), to: inLab(names[1]), address: addresses[1], port: strings.TrimSpace(port)},
		func() error { return removeNamespaces(names...) }, err
}

var inet = regexp.MustCompile(`inet ([0-9.]+)/`)

func addressIn(ctx context.Context, namespace string) (netip.Addr, error) {
	out, err := exec.CommandContext(ctx, "ip", "-n", namespace, "-4", "addr", "show", "dev", "eth0").CombinedOutput()
	found := inet.FindSubmatch(out)
	if err != nil || found == nil {
		return netip.Addr{}, fmt.Errorf("find the address of %s: %w: %s", namespace, err, out)
	}
	return netip.ParseAddr(string(found[1]))
}

// wireByHand writes the fewest rows for two switches with a router between them, and plugs a pod
// in on each host.
func (w *world) wireByHand(ctx context.Context) (*way, error) {
	rows := []string{"lr-add", "hand"}
	var pods []ovnhost.Pod
	for i, on := range []string{host, otherHost} {
		n := fmt.Sprint(i)
		mac, gateway := net.HardwareAddr{2, 0x4a, 0, 0, 0, byte(i + 1)}, netip.AddrFrom4([4]byte{10, 88, byte(i), 1})
		p := ovnhost.Pod{
			Host: on, Name: "hand:" + n, UID: uid("4", i), PortName: "hand" + n, MAC: mac, Address: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 88, byte(i), 2}), 24), Gateway: gateway, MTU: 1442,
		}
		pods = append(pods, p)
		address := mac.String() + " " + p.Address.Addr().String()
		rows = append(rows,
			"--", "ls-add", "hand"+n, "--", "lrp-add", "hand", "hand-to-"+n, "02:4a:00:00:01:0"+n, gateway.String()+"/24",
			"--", "lsp-add", "hand"+n, "hand-from-"+n, "--", "lsp-set-type", "hand-from-"+n, "router",
			"--", "lsp-set-addresses", "hand-from-"+n, "router", "--", "lsp-set-options", "hand-from-"+n, "router-port=hand-to-"+n,
			"--", "lsp-add", "hand"+n, p.Name, "--", "lsp-set-addresses", p.Name, address, "--", "lsp-set-port-security", p.Name, address)
	}
	if _, err := w.lab.NBCtl(ctx, rows...); err != nil {
		return nil, err
	}
	for _, p := range pods {
		if err := w.lab.Plug(ctx, p); err != nil {
			return nil, err
		}
	}
	return &way{name: "by hand", from: pods[0].Name, to: pods[1].Name, address: pods[1].Address.Addr(), port: pods[0].PortName}, nil
}

// ofANetwork matches the numbers and addresses in actions, which differ between two networks.
var ofANetwork = regexp.MustCompile(`\b(0x[0-9a-f]+|[0-9a-f]{2}(:[0-9a-f]{2}){5}|[0-9]+(\.[0-9]+){3}|[0-9]+)\b`)

// sameActions compares the actions of the datapath of the first host for a packet of each way.
func (w *world) sameActions(ctx context.Context, ours, byHand *way) (figures.Figure, error) {
	var actions []string
	for _, one := range []*way{ours, byHand} {
		text, err := w.actions(ctx, one)
		if err != nil {
			return figures.Figure{}, fmt.Errorf("trace %s: %w", one.name, err)
		}
		actions = append(actions, ofANetwork.ReplaceAllString(text, "N"))
	}
	f := figures.Figure{Name: "datapath actions of ofproto/trace, without numbers and addresses", Bound: "equal to a manual setup"}
	f.Measured, f.Within = "the same", actions[0] == actions[1]
	if !f.Within {
		f.Measured = "others"
		w.say("actions of ours:    %s\nactions by hand: %s", actions[0], actions[1])
	}
	return f, nil
}

// actions returns the actions of the datapath for a packet, in all passes.
func (w *world) actions(ctx context.Context, one *way) (string, error) {
	if err := w.lab.Ping(ctx, one.from, one.address); err != nil {
		return "", err
	}
	namespace := w.lab.Namespace(one.from)
	own, err := addressIn(ctx, namespace)
	if err != nil {
		return "", err
	}
	link, err := exec.CommandContext(ctx, "ip", "-n", namespace, "-br", "link", "show", "dev", "eth0").Output()
	if err != nil {
		return "", err
	}
	gateway, err := exec.CommandContext(ctx, "ip", "-n", namespace, "-4", "neigh", "show", "dev", "eth0").Output()
	fields := strings.Fields(string(gateway))
	at := slices.Index(fields, "lladdr")
	if err != nil || at < 0 {
		return "", fmt.Errorf("find the gateway's MAC address: %w: %q", err, gateway)
	}
	control, err := filepath.Glob(filepath.Join(w.lab.Host(host).Dir, "ovs-vswitchd.*.ctl"))
	if err != nil || len(control) != 1 {
		return "", fmt.Errorf("find the control socket of ovs-vswitchd: %w: %q", err, control)
	}
	packet := fmt.Sprintf("in_port=%q,tcp,dl_src=%s,dl_dst=%s,nw_src=%s,nw_dst=%s,nw_ttl=64,tcp_src=40000,tcp_dst=5201",
		one.port, strings.Fields(string(link))[2], fields[at+1], own, one.address)
	out, err := exec.CommandContext(ctx, "ovs-appctl", "-t", control[0], "ofproto/trace", "br-int", packet).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	var all []string
	for line := range strings.Lines(string(out)) {
		if text, is := strings.CutPrefix(line, "Datapath actions: "); is {
			all = append(all, strings.TrimSpace(text))
		}
	}
	if len(all) == 0 || strings.Contains(strings.Join(all, ""), "drop") {
		return "", fmt.Errorf("the packet does not arrive: %s", out)
	}
	return strings.Join(all, "; "), nil
}
