package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/coe-bridge/coe-bridge/cni/ovs/vif"
	"github.com/coe-bridge/coe-bridge/cni/uplink"
)

// HostPorts makes the node answer on the host ports that its ports in the switch have.
type HostPorts interface {
	// ServesHostPorts reports whether the node answers on host ports. If that changes, it answers on those that the
	// switch has.
	ServesHostPorts() bool
	// CheckHostPorts returns why no pod with these addresses must have these host ports, or nil.
	CheckHostPorts(ports []vif.HostPort, pod []netip.Addr) error
	// AwaitHostPorts waits until the node answers on the host ports that the switch has now.
	AwaitHostPorts(ctx context.Context) error
}

// Services leads the programs of pods to services.
type Services interface {
	// LeadPod leads the programs of a pod from its network namespace, and waits for a short time until they are led. Until then the node leads
	// them. It does nothing if the pod network does.
	LeadPod(ctx context.Context, netns string)
}

const (
	// maxHostPorts is how many host ports a pod can have.
	maxHostPorts = 64
	// maxOfNamespace is how many host ports the pods of a namespace can have on a node.
	maxOfNamespace = 500
)

// portMapping is an entry of portMappings in the conventions of CNI.
type portMapping struct {
	HostPort      int    `json:"hostPort"`
	ContainerPort int    `json:"containerPort"`
	Protocol      string `json:"protocol"`
	HostIP        string `json:"hostIP"`
}

// takeHostPorts reads portMappings. Entries without a host port request nothing.
func (w *wanted) takeHostPorts(value json.RawMessage) error {
	var mappings []portMapping
	if err := json.Unmarshal(value, &mappings); err != nil {
		return err
	}
	for _, m := range mappings {
		if m.HostPort == 0 {
			continue
		}
		all, err := m.hostPorts()
		if err != nil {
			return err
		}
		for _, p := range all {
			if slices.Contains(w.hostPorts, p) {
				continue
			}
			if slices.ContainsFunc(w.hostPorts, p.Overlaps) {
				return fmt.Errorf("%s is requested twice", p)
			}
			w.hostPorts = append(w.hostPorts, p)
		}
	}
	slices.SortFunc(w.hostPorts, func(a, b vif.HostPort) int { return strings.Compare(a.String(), b.String()) }) // runtimes promise no order
	if n := countOf(w.hostPorts); n > maxHostPorts {
		return fmt.Errorf("%d host ports are requested: a pod can have %d", n, maxHostPorts)
	}
	return nil
}

// countOf counts host ports. One at every address of both families counts once.
func countOf(all []vif.HostPort) (n int) {
	for _, p := range all {
		if p.Address.Is4() || !slices.Contains(all, p.OtherFamily()) {
			n++
		}
	}
	return n
}

// hostPorts returns the host ports of an entry: without hostIP one at every address of each family.
func (m portMapping) hostPorts() ([]vif.HostPort, error) {
	p, err := m.hostPort()
	if err != nil || m.HostIP != "" {
		return []vif.HostPort{p}, err
	}
	return []vif.HostPort{p, p.OtherFamily()}, nil
}

func (m portMapping) hostPort() (vif.HostPort, error) {
	p := vif.HostPort{Address: netip.IPv4Unspecified(), Protocol: strings.ToLower(m.Protocol)}
	if p.Protocol == "" {
		p.Protocol = "tcp"
	}
	if !slices.Contains([]string{"tcp", "udp", "sctp"}, p.Protocol) {
		return p, fmt.Errorf("protocol %q of host port %d: want tcp, udp or sctp", m.Protocol, m.HostPort)
	}
	for _, port := range []int{m.HostPort, m.ContainerPort} {
		if port < 1 || port > 65535 {
			return p, fmt.Errorf("host port %d of container port %d: want ports from 1 to 65535", m.HostPort, m.ContainerPort)
		}
	}
	p.Number, p.Pod = uint16(m.HostPort), uint16(m.ContainerPort)
	if m.HostIP == "" {
		return p, nil
	}
	address, err := netip.ParseAddr(m.HostIP)
	// Linux leads packets from ::1 to no other link, and forwards none to or from link-local addresses.
	if err != nil || address.Is4In6() || address.Is6() && (address.IsLoopback() || address.IsLinkLocalUnicast() || address.Zone() != "") {
		return p, fmt.Errorf("hostIP %q of host port %d: want an address of the node, of IPv6 neither the loopback nor a link-local address", m.HostIP, m.HostPort)
	}
	p.Address = address
	return p, nil
}

// serves reports whether the node answers on host ports.
func (a *Agent) serves() bool { return a.cfg.HostPorts != nil && a.cfg.HostPorts.ServesHostPorts() }

// claim fails if a host port of a plan belongs to another pod or to the node. Until the end of the call no other
// call gets it. Where the node serves none, the switch has them nevertheless: for pods of Kubernetes, the bridge
// reports a problem.
func (a *Agent) claim(ctx context.Context, p plan, undo *undo) error {
	switch {
	case len(p.port.HostPorts) == 0:
		return nil
	case !a.serves() && p.at.pod.external:
		return invalid("runtimeConfig.portMappings: the node serves no host ports: remove it, or set --host-ports of the bridge")
	case !a.serves():
		a.log.Warn("host ports of a pod are not served", "pod", p.at.pod)
	}
	release, err := a.claims.take(p)
	if err != nil {
		return err
	}
	undo.hold(release)
	if err := a.unclaimed(ctx, p); err != nil {
		return err
	}
	if !a.serves() {
		return nil
	}
	if err := a.cfg.HostPorts.CheckHostPorts(p.port.HostPorts, p.port.Addresses); err != nil {
		return refused(p.at.pod, err.Error())
	}
	return nil
}

// unclaimed fails if another port of the switch has a host port of a plan, or if the namespace has too many.
func (a *Agent) unclaimed(ctx context.Context, p plan) error {
	ports, err := a.cfg.Switch.Ports(ctx)
	if err != nil {
		return err
	}
	pods := map[string]*uplink.Record{} // by port
	for _, r := range a.cfg.Uplink.Records() {
		pods[r.Port] = r
	}
	count := countOf(p.port.HostPorts)
	for _, other := range ports {
		if other.Name == p.port.Name {
			continue
		}
		owner := "of container " + other.Attachment.Container
		if r := pods[other.Name]; r != nil {
			owner = r.Namespace + "/" + r.Pod
			if r.Namespace == p.record.Namespace {
				count += countOf(other.HostPorts)
			}
		}
		if taken, is := overlap(p.port.HostPorts, other.HostPorts); is {
			return claimed(p.at.pod, taken, owner)
		}
	}
	if count > maxOfNamespace {
		return refused(p.at.pod, fmt.Sprintf("the pods of namespace %s would have %d on this node, of %d", p.record.Namespace, count, maxOfNamespace))
	}
	return nil
}

// refused is the error for a pod that asks for host ports that it cannot have now.
func refused(by pod, why string) error {
	return types.NewError(types.ErrTryAgainLater, fmt.Sprintf("pod %s cannot have its host ports", by), why)
}

func claimed(by pod, taken vif.HostPort, owner string) error {
	return refused(by, fmt.Sprintf("%s belongs to pod %s", taken, owner))
}

// overlap returns the first of a list of host ports that overlaps one of the others.
func overlap(ports, others []vif.HostPort) (vif.HostPort, bool) {
	for _, p := range ports {
		if slices.ContainsFunc(others, p.Overlaps) {
			return p, true
		}
	}
	return vif.HostPort{}, false
}

// opened waits until the node answers on the host ports of a plan.
func (a *Agent) opened(ctx context.Context, p plan) error {
	if len(p.port.HostPorts) == 0 || !a.serves() {
		return nil
	}
	if err := a.cfg.HostPorts.AwaitHostPorts(ctx); err != nil {
		return types.NewError(types.ErrTryAgainLater, fmt.Sprintf("the node does not answer on the host ports of pod %s", p.at.pod), err.Error())
	}
	return nil
}

// lead leads the programs of the pod of a plan to services.
func (a *Agent) lead(ctx context.Context, p plan) {
	if a.cfg.Services != nil && slices.ContainsFunc(p.port.Addresses, netip.Addr.Is4) {
		a.cfg.Services.LeadPod(ctx, p.port.Attachment.Netns)
	}
}

// claims are the host ports of calls in progress: the local copy of the database can lack their ports.
type claims struct {
	mu   sync.Mutex
	held map[string]claimant // by the name of the port
}

type claimant struct {
	pod   pod
	ports []vif.HostPort
}

// take fails if another call holds a host port of a plan.
func (c *claims) take(p plan) (release func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, other := range c.held {
		if taken, is := overlap(p.port.HostPorts, other.ports); is {
			return nil, claimed(p.at.pod, taken, other.pod.String())
		}
	}
	if c.held == nil {
		c.held = map[string]claimant{}
	}
	c.held[p.port.Name] = claimant{p.at.pod, p.port.HostPorts}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.held, p.port.Name)
	}, nil
}
