package ovnhost

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// plugTimeout bounds the plugging in of a pod, the wait for OVN included.
const plugTimeout = 30 * time.Second

// defaultMTU leaves room for geneve in the underlay's 1500.
const defaultMTU = 1400

// ifaNoDAD makes an IPv6 address usable without looking for duplicates.
const ifaNoDAD = unix.IFA_F_NODAD

// Pod is a pod's interface, as the one who has chosen its values tells it.
type Pod struct {
	Host     string
	Name     string // the interface's, "namespace:pod-name": the iface-id
	UID      string // the pod's: the iface-id-ver
	PortName string // of the port on the host's switch, and its link
	MAC      net.HardwareAddr
	Address  netip.Prefix
	Gateway  netip.Addr // may be outside of Address; zero: no route
	MTU      int        // zero: what fits the tunnels
}

// Plug makes the pod's namespace, joins it to its host's switch, and waits until
// OVN has installed the flows of the port.
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
	netns := l.Namespace(p.Name)
	if err := l.addNamespace(ctx, netns); err != nil {
		return err
	}
	if err := addVeth(l.Namespace(p.Host), netns, p); err != nil {
		return err
	}
	if err := withLinks(netns, func(h *netlink.Handle) error { return configure(h, p) }); err != nil {
		return err
	}
	// The userspace datapath drops TCP whose checksums were left to the card.
	if _, err := output(ctx, "ip", "netns", "exec", netns, "ethtool", "-K", hostLink, "tx", "off"); err != nil {
		return fmt.Errorf("turn checksum offload off: %w", err)
	}
	return host.addPort(ctx, p)
}

func addVeth(host, pod string, p Pod) error {
	peer, err := netns.GetFromName(pod)
	if err != nil {
		return fmt.Errorf("open namespace %s: %w", pod, err)
	}
	defer func() { _ = peer.Close() }()
	mtu := p.MTU
	if mtu == 0 {
		mtu = defaultMTU
	}
	link := netlink.NewVeth(netlink.LinkAttrs{Name: p.PortName, MTU: mtu})
	link.PeerName, link.PeerNamespace = hostLink, netlink.NsFd(peer)
	link.PeerHardwareAddr, link.PeerMTU = p.MAC, uint32(mtu)
	return withLinks(host, func(h *netlink.Handle) error {
		if err := h.LinkAdd(link); err != nil {
			return fmt.Errorf("add link %s: %w", p.PortName, err)
		}
		return setUp(h, p.PortName)
	})
}

// configure gives the pod's link its address and route.
func configure(h *netlink.Handle, p Pod) error {
	if err := addAddress(h, hostLink, p.Address); err != nil {
		return err
	}
	if err := setUp(h, hostLink); err != nil {
		return err
	}
	if !p.Gateway.IsValid() {
		return nil
	}
	link, err := h.LinkByName(hostLink)
	if err != nil {
		return fmt.Errorf("find link %s: %w", hostLink, err)
	}
	route := &netlink.Route{LinkIndex: link.Attrs().Index, Gw: p.Gateway.AsSlice()}
	if !p.Address.Contains(p.Gateway) {
		route.Flags = int(netlink.FLAG_ONLINK)
	}
	if err := h.RouteReplace(route); err != nil {
		return fmt.Errorf("add route by %s: %w", p.Gateway, err)
	}
	return nil
}

func (h *Host) addPort(ctx context.Context, p Pod) error {
	_, err := h.VSCtl(ctx, "add-port", integrationBridge, p.PortName, "--", "set", "Interface", p.PortName,
		`external_ids:iface-id="`+p.Name+`"`, `external_ids:iface-id-ver="`+p.UID+`"`, `external_ids:attached-mac="`+p.MAC.String()+`"`)
	if err != nil {
		return fmt.Errorf("add port %s: %w", p.PortName, err)
	}
	if _, err := h.VSCtl(ctx, "wait-until", "Interface", p.PortName, "external_ids:ovn-installed=true"); err != nil {
		return fmt.Errorf("wait for OVN to install port %s (is there a logical switch port %s?): %w", p.PortName, p.Name, err)
	}
	return nil
}

// Unplug removes what Plug has made, and ends what runs in the pod.
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
	err := withLinks(l.Namespace(p.Host), func(h *netlink.Handle) error {
		link, err := h.LinkByName(p.PortName)
		if errors.As(err, new(netlink.LinkNotFoundError)) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("find link %s: %w", p.PortName, err)
		}
		return h.LinkDel(link)
	})
	if err != nil {
		return err
	}
	return removeNamespace(ctx, l.Namespace(p.Name))
}
