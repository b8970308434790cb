package agent

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/coe-bridge/coe-bridge/cni/links"
)

// errChanged is the CNI error code of CHECK for an attachment that was changed.
const errChanged = 100

// check compares the attachment with the result that the runtime got from ADD.
func (a *Agent) check(ctx context.Context, at *attachment) error {
	answered, err := at.answered()
	if err != nil {
		return err
	}
	inPod, err := at.open(a.cfg.Node)
	if err != nil {
		return err
	}
	defer func() { _ = inPod.Close() }()
	port, found, err := a.cfg.Switch.Find(ctx, at.Attachment)
	if err == nil && !found {
		err = fmt.Errorf("the switch has no port of container %s", at.Container)
	}
	if err == nil {
		err = a.cfg.Switch.Check(ctx, port.Name)
	}
	if err == nil {
		err = a.isConfirmed(port.Name)
	}
	if err != nil {
		return changed(at, err)
	}
	is, err := links.Look(inPod, at.IfName)
	if err == nil {
		err = compare(is, answered.mac, answered.addresses, answered.routes)
	}
	if err == nil && answered.mtu != 0 && is.MTU != answered.mtu {
		err = fmt.Errorf("its MTU is %d, want %d", is.MTU, answered.mtu)
	}
	if err != nil {
		return changed(at, fmt.Errorf("link %s: %w", at.IfName, err))
	}
	return nil
}

func changed(at *attachment, err error) error {
	return types.NewError(errChanged, fmt.Sprintf("the network of pod %s differs from the result of ADD", at.pod), err.Error())
}

// answered is the part of a previous result that is about the pod's link.
type answered struct {
	mac       net.HardwareAddr
	mtu       int // 0: not in the result of older CNI versions
	addresses []netip.Prefix
	routes    []links.Route // through gateways of the link
}

func (at *attachment) answered() (out answered, err error) {
	n := at.network
	if err := version.ParsePrevResult(&n.PluginConf); err != nil {
		return out, invalid("prevResult: %s", err)
	}
	if n.PrevResult == nil {
		return out, invalid("CHECK needs a prevResult")
	}
	previous, err := current.NewResultFromResult(n.PrevResult)
	if err != nil {
		return out, invalid("prevResult: %s", err)
	}
	place := -1
	for i, link := range previous.Interfaces {
		if link != nil && link.Name == at.IfName && link.Sandbox == at.Netns {
			place = i
			out.mtu = link.Mtu
			if out.mac, err = net.ParseMAC(link.Mac); err != nil {
				return out, invalid("prevResult: %s", err)
			}
		}
	}
	if place < 0 {
		return out, invalid("prevResult has no interface %s in %s", at.IfName, at.Netns)
	}
	out.take(previous, place)
	return out, nil
}

// take reads the addresses of an interface, and the routes through their gateways. A
// chained plugin may have added other routes.
func (o *answered) take(previous *current.Result, place int) {
	gateways := map[netip.Addr]bool{}
	for _, a := range previous.IPs {
		if a == nil || a.Interface == nil || *a.Interface != place {
			continue
		}
		o.addresses = append(o.addresses, prefix(a.Address))
		if gateway := addr(a.Gateway); gateway.IsValid() {
			gateways[gateway] = true
		}
	}
	for _, r := range previous.Routes {
		if r == nil {
			continue
		}
		if gateway := addr(r.GW); gateways[gateway] {
			o.routes = append(o.routes, links.Route{Destination: prefix(r.Dst), Gateway: gateway})
		}
	}
}

func addr(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}

func prefix(n net.IPNet) netip.Prefix {
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(addr(n.IP), bits)
}
