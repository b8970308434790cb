package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/test/bench/process"
	"github.com/coe-bridge/coe-bridge/test/lab/kube"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// hosts is a cluster whose two nodes are hosts of a real OVN, and whose pods are plugged in there.
type hosts struct {
	*cluster
	lab    *ovnhost.Lab
	bridge *process.Bridge
	at     []end // the pods
}

// end is a pod that is plugged in.
type end struct {
	device  string // its namespace in the lab
	address netip.Addr
}

func (b *bench) newHosts(ctx context.Context, s spec) (_ *hosts, err error) {
	h := &hosts{}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.close())
		}
	}()
	if h.cluster, err = b.newCluster(s); err != nil {
		return nil, err
	}
	if h.lab, err = b.newLab(ctx, kube.Node(0), kube.Node(1)); err != nil {
		return nil, err
	}
	if h.bridge, err = b.start(ctx, h.cluster, h.lab.NB.Remote); err != nil {
		return nil, err
	}
	b.Say("plugging %d pods in", s.load.Count)
	h.at = make([]end, s.load.Count)
	_, err = kube.Each(ctx, s.load.Count, plugs, h.plug)
	return h, err
}

// plugs is the number of pods that are plugged in at the same time.
const plugs = 4

func (h *hosts) close() error {
	var errs []error
	if h.bridge != nil {
		errs = append(errs, h.bridge.Stop())
	}
	if h.lab != nil {
		errs = append(errs, h.lab.Close())
	}
	if h.cluster != nil {
		errs = append(errs, h.api.Close())
	}
	return errors.Join(errs...)
}

// plug plugs the pod with a number in, as the backend has confirmed it.
func (h *hosts) plug(ctx context.Context, i int) error {
	pod := h.pod(i)
	name := netvirt.InterfaceName(pod.Namespace, pod.Name, "", true)
	var vpn []struct {
		Adjacencies []struct {
			Address netip.Prefix `json:"ip_address"`
			MAC     string       `json:"mac_address"`
			Gateway netip.Addr   `json:"subnet_gateway_ip"`
		} `json:"odl-l3vpn:adjacency"`
	}
	found, err := h.bridge.Client.Read(ctx, "operational/l3vpn:vpn-interfaces/vpn-interface/"+name, &vpn)
	if err != nil || !found || len(vpn[0].Adjacencies) != 1 {
		return errors.Join(fmt.Errorf("plug pod %s in: the backend has not confirmed it", name), err)
	}
	a := vpn[0].Adjacencies[0]
	mac, err := net.ParseMAC(a.MAC)
	if err != nil {
		return fmt.Errorf("plug pod %s in: %w", name, err)
	}
	h.at[i] = end{name, a.Address.Addr()}
	return h.lab.Plug(ctx, ovnhost.Pod{
		Host: pod.Spec.NodeName, Name: name, UID: string(pod.UID), PortName: netvirt.PortName(name, name),
		MAC: mac, Address: a.Address, Gateway: a.Gateway,
	})
}

// write changes the number of policies. The last one has the role last. It waits until the rows are there, and
// the switches have the flows.
func (h *hosts) write(ctx context.Context, policies int, last string) error {
	if err := h.policies.Resize(policies); err != nil {
		return err
	}
	if err := awaitACL(ctx, h.lab, last, true); err != nil {
		return err
	}
	if _, err := h.bridge.AwaitSync(ctx, h.load.Count); err != nil {
		return err
	}
	return h.lab.Sync(ctx)
}

// flows returns the number of OpenFlow flows of a host.
func (h *hosts) flows(ctx context.Context, host string) (int, error) {
	out, err := h.lab.Host(host).Flows(ctx)
	return strings.Count(out, "cookie="), err
}
