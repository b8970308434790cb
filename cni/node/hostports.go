package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/cni/nodeports"
	"github.com/coe-bridge/coe-bridge/cni/ovs"
	"github.com/coe-bridge/coe-bridge/cni/uplink"
)

// hostPorts has the calls that wait for host ports.
type hostPorts struct {
	requests chan chan<- error
	waiting  []chan<- error // taken before the current check
	// are the host ports at the last check, and unread is why they are unknown.
	are    nodeports.Hosts
	unread error
	// failure is why the last check has not programmed the host ports.
	failure error
	// unreadable are the entries of the switch that were logged last.
	unreadable []string
}

func (h *hostPorts) take(request chan<- error) { h.waiting = append(h.waiting, request) }

// takeAll takes the calls that are waiting now.
func (h *hostPorts) takeAll() {
	for {
		select {
		case request := <-h.requests:
			h.take(request)
		default:
			return
		}
	}
}

// answer answers the calls that were taken before the check.
func (h *hostPorts) answer() {
	for _, request := range h.waiting {
		request <- h.failure
	}
	h.waiting = nil
}

// AwaitHostPorts waits until the node answers on the host ports that the ports of the switch have now. Run must
// run.
func (n *Node) AwaitHostPorts(ctx context.Context) error {
	answer := make(chan error, 1)
	select {
	case n.hosts.requests <- answer:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ServesHostPorts reports whether the node answers on host ports of pods, as far as it knows.
func (n *Node) ServesHostPorts() bool {
	place, _, _ := n.cfg.Uplink.Place()
	return place != nil && !place.Isolated && len(place.HostPorts) > 0
}

// CheckHostPorts returns why a pod with addresses must not have host ports: one is not allowed, leads nowhere, its
// address is not the node's or belongs to a service, or a program of the node listens on it. A port at every address of both
// families needs one family that the node and the pod have.
func (n *Node) CheckHostPorts(ports []ovs.HostPort, pod []netip.Addr) error {
	place, _, _ := n.cfg.Uplink.Place()
	if place == nil || !n.servesHostPorts(place) {
		return errors.New("the node has no edge address and serves no host ports; coe-bridge status says why")
	}
	var all []nodeports.HostPort
	serves := func(p ovs.HostPort) bool {
		return slices.Contains(ports, p) && n.leadsAt(place, p) && slices.ContainsFunc(pod, p.SameFamily)
	}
	for _, p := range ports {
		switch {
		case !serves(p) && serves(p.OtherFamily()):
			continue
		case !slices.ContainsFunc(pod, p.SameFamily):
			return fmt.Errorf("%s: the pod has no address of this family: %s", p, pod)
		case !n.leadsAt(place, p):
			return fmt.Errorf("%s: the node does not connect to pods by this family: --node-network of the bridge has no prefix of it, or the log of the agent says why", p)
		case !allows(place, p):
			return fmt.Errorf("%s: the port is not allowed; allowed are %s (--host-ports of the bridge)", p, rangesText(place.HostPorts))
		case n.cfg.Uplink.HasExternal(p.Address):
			return fmt.Errorf("%s: the address belongs to a service", p)
		}
		all = append(all, nodeports.HostPort{Address: p.Address, Protocol: p.Protocol, Number: p.Number})
	}
	return nodeports.CheckHostPorts(n.cfg.Netns, all)
}

// leadsAt reports whether the node leads others in the family of a host port.
func (n *Node) leadsAt(place *uplink.Place, p ovs.HostPort) bool {
	if p.Address.Is4() {
		return place.Edge.IsValid()
	}
	return place.IPv6.Edge.IsValid() && !n.lacksIPv6.Load()
}

// servesHostPorts reports whether a node answers on host ports.
func (n *Node) servesHostPorts(place *uplink.Place) bool {
	return n.leads(place) && len(place.HostPorts) > 0
}

func allows(place *uplink.Place, p ovs.HostPort) bool {
	return slices.ContainsFunc(place.HostPorts, func(r uplink.PortRange) bool { return r.Contains(p.Number) })
}

func rangesText(all []uplink.PortRange) string {
	texts := make([]string, len(all))
	for i, r := range all {
		texts[i] = r.String()
	}
	return strings.Join(texts, ", ")
}

// readHostPorts notes the host ports of the pods. A change of them is followed by a check of everything.
func (n *Node) readHostPorts(asks context.Context, place *uplink.Place) {
	n.hosts.are, n.hosts.unread = nodeports.Hosts{}, nil
	if !n.servesHostPorts(place) {
		n.logUnreadable(nil)
	} else {
		n.hosts.are.Ports, n.hosts.unread = n.hostPorts(asks, place)
		n.hosts.are.Unknown = n.hosts.unread != nil
	}
}

// hostPorts returns the allowed host ports of the ports of the switch. A port whose pod the bridge no longer reports
// has none: another pod can have its address.
func (n *Node) hostPorts(asks context.Context, place *uplink.Place) (all []nodeports.HostPort, err error) {
	ports, err := n.cfg.Switch.Ports(asks)
	if err != nil {
		return nil, fmt.Errorf("read the host ports of pods: %w", err)
	}
	pods := map[string]string{} // their UIDs, by port
	for _, r := range n.cfg.Uplink.Records() {
		pods[r.Port] = r.PodUID
	}
	var unreadable []string
	defer func() { n.logUnreadable(unreadable) }()
	for _, p := range ports {
		for _, text := range p.Unreadable {
			unreadable = append(unreadable, fmt.Sprintf("%s: %q", p.Name, text))
		}
		if pods[p.Name] != p.PodUID {
			continue
		}
		for _, h := range p.HostPorts {
			pod := slices.IndexFunc(p.Addresses, h.SameFamily)
			if pod >= 0 && n.leadsAt(place, h) && allows(place, h) {
				all = append(all, nodeports.HostPort{
					Address: h.Address, Protocol: h.Protocol, Number: h.Number, Pod: netip.AddrPortFrom(p.Addresses[pod], h.Pod),
				})
			}
		}
	}
	return all, nil
}

// logUnreadable logs the entries of host ports in the switch that cannot be read, if they have changed. The node does
// not answer on these ports, and the other ones are not concerned.
func (n *Node) logUnreadable(entries []string) {
	n.metrics.unreadable.Set(float64(len(entries)))
	if len(entries) > 0 && !slices.Equal(entries, n.hosts.unreadable) {
		n.log.Error("the node does not answer on host ports of pods, because their entries in the switch cannot be read; create the pods again",
			"entries", entries)
	}
	n.hosts.unreadable = entries
}

// allowLoopback sets whether programs of the node reach pods from a loopback address. While they do, the table of
// package nodeports must keep other packets with such addresses out.
func (n *Node) allowLoopback(is bool) error {
	value := "0"
	if is {
		value = "1"
	}
	_, err := n.cfg.Settings.Put(n.cfg.Netns, filepath.Join("ipv4/conf", linkName, "route_localnet"), value)
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // the link is missing
		return fmt.Errorf("set whether programs of the node reach host ports at loopback addresses: %w", err)
	}
	return nil
}
