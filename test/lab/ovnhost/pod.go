package ovnhost

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netns"

	"github.com/coe-bridge/coe-bridge/cni/links"
)

// plugTimeout bounds the attachment of a pod, including the wait for OVN.
const plugTimeout = 2 * time.Minute

// defaultMTU is the underlay's 1500 minus space for Geneve.
const defaultMTU = 1400

// Pod is a pod's interface with chosen values.
type Pod struct {
	Host     string
	Name     string // of the interface, "namespace:pod-name": the iface-id
	UID      string // of the pod: the iface-id-ver
	PortName string // of the port on the host's switch, and of its link
	MAC      net.HardwareAddr
	Address  netip.Prefix
	Gateway  netip.Addr // can be outside of Address; zero for no route
	MTU      int        // zero for the largest MTU that fits the tunnels
}

// Plug creates the pod's namespace, attaches it to its host's switch, and waits until OVN, if the lab has it, has installed the
// port.
func (l *Lab) Plug(ctx context.Context, p Pod) error {
	ctx, cancel := context.WithTimeout(ctx, plugTimeout)
	defer cancel()
	if err := l.plug(ctx, p); err != nil {
		return fmt.Errorf("plug pod %s into %s: %w", p.Name, p.Host, err)
	}
	l.log.Debug("pod plugged in", "name", p.Name, "host", p.Host, "address", p.Address)
	return nil
}

func (l *Lab) plug(ctx context.Context, p Pod) error {
	host := l.Host(p.Host)
	if host == nil {
		return errors.New("no such host")
	}
	namespace := l.Namespace(p.Name)
	if err := l.addNamespace(ctx, namespace); err != nil {
		return err
	}
	if err := l.addLinks(ctx, namespace, p); err != nil {
		return err
	}
	if err := host.addPort(ctx, p); err != nil || l.switchesOnly {
		return err
	}
	return host.awaitPort(ctx, p)
}

// addLinks creates the pod's pair of links, like the CNI plugin.
func (l *Lab) addLinks(ctx context.Context, pod string, p Pod) error {
	pair := links.Pair{
		Port: p.PortName, Name: hostLink, MAC: p.MAC, MTU: p.MTU,
		Addresses: []netip.Prefix{p.Address}, Routes: links.DefaultRoutes(p.Address, p.Gateway), SoftwareChecksums: true,
	}
	if pair.MTU == 0 {
		pair.MTU = defaultMTU
	}
	return inNamespaces(func(node, inPod netns.NsHandle) error {
		pair.Node, pair.Pod = node, inPod
		return links.Add(ctx, pair)
	}, l.Namespace(p.Host), pod)
}

// inNamespaces calls f with two open namespaces.
func inNamespaces(f func(a, b netns.NsHandle) error, nameA, nameB string) error {
	a, err := netns.GetFromName(nameA)
	if err != nil {
		return fmt.Errorf("open namespace %s: %w", nameA, err)
	}
	defer func() { _ = a.Close() }()
	b, err := netns.GetFromName(nameB)
	if err != nil {
		return fmt.Errorf("open namespace %s: %w", nameB, err)
	}
	defer func() { _ = b.Close() }()
	return f(a, b)
}

func (h *Host) addPort(ctx context.Context, p Pod) error {
	_, err := h.VSCtl(ctx, "add-port", integrationBridge, p.PortName, "--", "set", "Interface", p.PortName,
		`external_ids:iface-id="`+p.Name+`"`, `external_ids:iface-id-ver="`+p.UID+`"`, `external_ids:attached-mac="`+p.MAC.String()+`"`)
	if err != nil {
		return fmt.Errorf("add port %s: %w", p.PortName, err)
	}
	return nil
}

func (h *Host) awaitPort(ctx context.Context, p Pod) error {
	if _, err := h.VSCtl(ctx, "wait-until", "Interface", p.PortName, "external_ids:ovn-installed=true"); err != nil {
		return fmt.Errorf("wait for OVN to install port %s (is there a logical switch port %s?): %w", p.PortName, p.Name, err)
	}
	return nil
}

// Unplug removes what Plug has created, and ends the pod's processes.
func (l *Lab) Unplug(ctx context.Context, p Pod) error {
	ctx, cancel := context.WithTimeout(ctx, plugTimeout)
	defer cancel()
	if err := l.unplug(ctx, p); err != nil {
		return fmt.Errorf("unplug pod %s from %s: %w", p.Name, p.Host, err)
	}
	l.log.Debug("pod unplugged", "name", p.Name, "host", p.Host)
	return nil
}

func (l *Lab) unplug(ctx context.Context, p Pod) error {
	host := l.Host(p.Host)
	if host == nil {
		return errors.New("no such host")
	}
	if _, err := host.VSCtl(ctx, "--if-exists", "del-port", integrationBridge, p.PortName); err != nil {
		return fmt.Errorf("remove port %s: %w", p.PortName, err)
	}
	if err := l.closePod(p.Name); err != nil {
		return err
	}
	node, err := netns.GetFromName(l.Namespace(p.Host))
	if err != nil {
		return fmt.Errorf("open namespace of host %s: %w", p.Host, err)
	}
	defer func() { _ = node.Close() }()
	if err := links.Delete(node, p.PortName); err != nil {
		return err
	}
	return removeNamespace(ctx, l.Namespace(p.Name))
}
