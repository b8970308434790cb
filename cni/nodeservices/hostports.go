package nodeservices

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/coe-bridge/coe-bridge/cni/nodeports"
	"github.com/coe-bridge/coe-bridge/cni/ovs/vif"
	"github.com/coe-bridge/coe-bridge/cni/porttables"
	"github.com/coe-bridge/coe-bridge/cni/uplink"
)

// hostPorts has the calls that wait for host ports.
type hostPorts struct {
	taken []chan<- error // before the check began

	mu      sync.Mutex
	waiting []chan<- error // since then
	asked   chan struct{}  // has a value if there are some

	// are the host ports at the last check, and unread is why they are unknown.
	are    porttables.Hosts
	unread error
	// failure is why the check has not programmed the host ports.
	failure error
	// unreadable are the entries of the switch that were logged last.
	unreadable []string
}

// ask lets a call wait for an answer.
func (h *hostPorts) ask(answer chan<- error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waiting = append(h.waiting, answer)
	select {
	case h.asked <- struct{}{}:
	default:
	}
}

// begin takes the calls that are waiting now.
func (h *hostPorts) begin() {
	h.failure = errors.New("the node is not connected to the pod network")
	h.mu.Lock()
	defer h.mu.Unlock()
	h.taken, h.waiting = h.waiting, nil
	select {
	case <-h.asked:
	default:
	}
}

// end answers the calls that were taken when the check began.
func (h *hostPorts) end() {
	for _, call := range h.taken {
		call <- h.failure
	}
	h.taken = nil
}

// Asked returns a channel with a value if a call waits for host ports, which needs a check.
func (s *Services) Asked() <-chan struct{} { return s.hosts.asked }

// AwaitHostPorts waits until the node answers on the host ports that the ports of the switch have now. The node must be checked meanwhile.
func (s *Services) AwaitHostPorts(ctx context.Context) error {
	answer := make(chan error, 1)
	s.hosts.ask(answer)
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ServesHostPorts reports whether the node answers on host ports of pods, as far as it knows.
func (s *Services) ServesHostPorts() bool {
	place, _, _ := s.cfg.Uplink.Place()
	return place != nil && !place.Isolated && len(place.HostPorts) > 0
}

// CheckHostPorts returns why a pod with addresses must not have host ports: one is not allowed, leads nowhere, its
// address is not the node's or belongs to a service, or a program of the node listens on it. A port at every address of both
// families needs one family that the node and the pod have.
func (s *Services) CheckHostPorts(ports []vif.HostPort, pod []netip.Addr) error {
	place, _, _ := s.cfg.Uplink.Place()
	if place == nil || !s.servesHostPorts(place) {
		return errors.New("the node has no edge address and serves no host ports; coe-bridge status says why")
	}
	var all []nodeports.HostPort
	serves := func(p vif.HostPort) bool {
		return slices.Contains(ports, p) && s.leadsAt(place, p) && slices.ContainsFunc(pod, p.SameFamily)
	}
	for _, p := range ports {
		switch {
		case !serves(p) && serves(p.OtherFamily()):
			continue
		case !slices.ContainsFunc(pod, p.SameFamily):
			return fmt.Errorf("%s: the pod has no address of this family: %s", p, pod)
		case !s.leadsAt(place, p):
			return fmt.Errorf("%s: the node does not connect to pods by this family: --node-network of the bridge has no prefix of it, or the log of the agent says why", p)
		case !allows(place, p):
			return fmt.Errorf("%s: the port is not allowed; allowed are %s (--host-ports of the bridge)", p, rangesText(place.HostPorts))
		case s.cfg.Uplink.HasExternal(p.Address):
			return fmt.Errorf("%s: the address belongs to a service", p)
		}
		all = append(all, nodeports.HostPort{Address: p.Address, Protocol: p.Protocol, Number: p.Number})
	}
	return porttables.CheckHostPorts(s.cfg.Netns, all)
}

// leadsAt reports whether the node leads others in the family of a host port.
func (s *Services) leadsAt(place *uplink.Place, p vif.HostPort) bool {
	if p.Address.Is4() {
		return place.Edge.IsValid()
	}
	return place.IPv6.Edge.IsValid() && !s.lacksIPv6.Load()
}

// servesHostPorts reports whether a node answers on host ports.
func (s *Services) servesHostPorts(place *uplink.Place) bool {
	return s.leads(place) && len(place.HostPorts) > 0
}

func allows(place *uplink.Place, p vif.HostPort) bool {
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
func (s *Services) readHostPorts(asks context.Context, place *uplink.Place) {
	s.hosts.are, s.hosts.unread = porttables.Hosts{}, nil
	if !s.servesHostPorts(place) {
		s.logUnreadable(nil)
	} else {
		s.hosts.are.Ports, s.hosts.unread = s.hostPorts(asks, place)
		s.hosts.are.Unknown = s.hosts.unread != nil
	}
}

// hostPorts returns the allowed host ports of the ports of the switch. A port whose pod the bridge no longer reports
// has none: another pod can have its address.
func (s *Services) hostPorts(asks context.Context, place *uplink.Place) (all []nodeports.HostPort, err error) {
	ports, err := s.cfg.Switch.Ports(asks)
	if err != nil {
		return nil, fmt.Errorf("read the host ports of pods: %w", err)
	}
	pods := map[string]string{} // their UIDs, by port
	for _, r := range s.cfg.Uplink.Records() {
		pods[r.Port] = r.PodUID
	}
	var unreadable []string
	defer func() { s.logUnreadable(unreadable) }()
	for _, p := range ports {
		for _, text := range p.Unreadable {
			unreadable = append(unreadable, fmt.Sprintf("%s: %q", p.Name, text))
		}
		if pods[p.Name] != p.PodUID {
			continue
		}
		for _, h := range p.HostPorts {
			pod := slices.IndexFunc(p.Addresses, h.SameFamily)
			if pod >= 0 && s.leadsAt(place, h) && allows(place, h) {
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
func (s *Services) logUnreadable(entries []string) {
	s.metrics.unreadable.Set(float64(len(entries)))
	if len(entries) > 0 && !slices.Equal(entries, s.hosts.unreadable) {
		s.log.Error("the node does not answer on host ports of pods, because their entries in the switch cannot be read; create the pods again",
			"entries", entries)
	}
	s.hosts.unreadable = entries
}

// allowLoopback sets whether programs of the node reach pods from a loopback address. While they do, the table of
// package nodeports must keep other packets with such addresses out.
func (s *Services) allowLoopback(is bool) error {
	value := "0"
	if is {
		value = "1"
	}
	_, err := s.cfg.Settings.Put(s.cfg.Netns, filepath.Join("ipv4/conf", s.cfg.Link, "route_localnet"), value)
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // the link is missing
		return fmt.Errorf("set whether programs of the node reach host ports at loopback addresses: %w", err)
	}
	return nil
}
