package main

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"

	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// pod is a pod of the story, and what the bridge has chosen for it.
type pod struct {
	namespace, name, uid string
	host                 string
	port                 ovnhost.Pod // set when the backend has confirmed it
}

func (p *pod) String() string { return p.namespace + ":" + p.name }

// elan is the name of the pod's elan-instance, and of the switch for it.
func (p *pod) elan(node netip.Addr) string { return node.String() + ":" + p.namespace }

func (p *pod) body(node netip.Addr) object {
	return object{"pod:pods": []object{{
		"uid": p.uid, "name": p.name, "network-NS": p.namespace, "host-ip-address": node.String(),
		"interface": []object{{"uid": p.uid, "network-type": "VXLAN"}},
	}}}
}

// chosen reads back what the bridge has chosen, from the trees of what the backend
// has confirmed.
func (r rest) chosen(ctx context.Context, p *pod) (ovnhost.Pod, error) {
	var vpn struct {
		Interfaces []struct {
			Adjacencies []struct {
				Address netip.Prefix `json:"ip_address"`
				MAC     string       `json:"mac_address"`
				Gateway netip.Addr   `json:"subnet_gateway_ip"`
			} `json:"odl-l3vpn:adjacency"`
		} `json:"vpn-interface"`
	}
	var ietf struct {
		Interfaces []struct {
			Port string `json:"odl-interface:parent-interface"`
		} `json:"interface"`
	}
	if err := r.confirmed(ctx, "l3vpn:vpn-interfaces/vpn-interface/"+p.String(), &vpn); err != nil {
		return ovnhost.Pod{}, err
	}
	if err := r.confirmed(ctx, "ietf-interfaces:interfaces/interface/"+p.String(), &ietf); err != nil {
		return ovnhost.Pod{}, err
	}
	if len(ietf.Interfaces) == 0 || len(vpn.Interfaces) == 0 || len(vpn.Interfaces[0].Adjacencies) == 0 {
		return ovnhost.Pod{}, fmt.Errorf("the backend has not confirmed interface %s", p)
	}
	a := vpn.Interfaces[0].Adjacencies[0]
	mac, err := net.ParseMAC(a.MAC)
	if err != nil {
		return ovnhost.Pod{}, fmt.Errorf("read adjacency of %s: %w", p, err)
	}
	return ovnhost.Pod{
		Host: p.host, Name: p.String(), UID: p.uid, PortName: ietf.Interfaces[0].Port,
		MAC: mac, Address: a.Address, Gateway: a.Gateway,
	}, nil
}

// instances are the names of the elan- and vpn-instances that the backend has
// confirmed, sorted.
func (r rest) instances(ctx context.Context) (elans, vpns []string, err error) {
	var elan struct {
		Top struct {
			List []struct {
				Name string `json:"elan-instance-name"`
			} `json:"elan-instance"`
		} `json:"elan-instances"`
	}
	var vpn struct {
		Top struct {
			List []struct {
				Name string `json:"vpn-instance-name"`
			} `json:"vpn-instance"`
		} `json:"vpn-instances"`
	}
	if err = r.confirmed(ctx, "elan:elan-instances", &elan); err != nil {
		return nil, nil, err
	}
	if err = r.confirmed(ctx, "l3vpn:vpn-instances", &vpn); err != nil {
		return nil, nil, err
	}
	for _, e := range elan.Top.List {
		elans = append(elans, e.Name)
	}
	for _, v := range vpn.Top.List {
		vpns = append(vpns, v.Name)
	}
	slices.Sort(elans)
	slices.Sort(vpns)
	return elans, vpns, nil
}

// expected are the names that the specification's table asks for: an elan-instance
// for each namespace on a node, a vpn-instance for each namespace.
func (s *story) expected() (elans, vpns []string) {
	e, v := map[string]bool{}, map[string]bool{}
	for _, p := range s.running {
		e[p.elan(s.node(p.host))] = true
		v[p.namespace] = true
	}
	return slices.Sorted(maps.Keys(e)), slices.Sorted(maps.Keys(v))
}

// The service of the story, with an address that no pool serves.
const (
	serviceUID  = "5e55101e-c0e0-4000-8000-000000000001"
	serviceURL  = "http://10.96.0.10/"
	serviceIP   = "10.96.0.10"
	servicePort = 80
	pagePort    = "8080"
)

// putService says which pods serve the service.
func (r rest) putService(ctx context.Context, pods ...*pod) error {
	uids := make([]string, 0, len(pods)) // empty, not null: nobody serves
	for _, p := range pods {
		uids = append(uids, p.uid)
	}
	return r.config(ctx, http.MethodPut, "service:service-information/services/"+serviceUID, object{
		"service:services": []object{{
			"uid": serviceUID, "name": "page", "network-NS": "web", "cluster-ip-address": serviceIP,
			"service-ports": []object{{"name": "http", "port": servicePort, "target-port": pagePort}},
			"endpoints":     uids,
		}},
	})
}
