package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
)

// uid returns a UUID with a kind, which is a hex digit ("a" for pods), and a number.
func uid(kind string, n int) string { return fmt.Sprintf("e2e%s0000-c0e0-4000-8000-%012d", kind, n) }

// addressPool is an allocation pool of a network.
type addressPool struct {
	network, subnet, from, to, gateway string
	dns                                []string
}

func (p addressPool) body() object {
	pool := object{"subnet": p.subnet}
	for leaf, value := range map[string]string{"allocate-from": p.from, "allocate-to": p.to, "gateway": p.gateway} {
		if value != "" {
			pool[leaf] = value
		}
	}
	if len(p.dns) > 0 {
		pool["dns-servers"] = p.dns
	}
	return object{"network": []object{{"network-id": p.network, "allocation-pool": []object{pool}}}}
}

func (r rest) putPool(t testing.TB, p addressPool) {
	t.Helper()
	r.change(t, http.MethodPut, poolPath(p.network), p.body())
}

func poolPath(network string) string {
	return "dhcp_allocation_pool:dhcp_allocation_pool/network/" + network
}

// aPod is the report of a pod by a source.
type aPod struct {
	uid, namespace, name string
	node                 string // its address
	address              string // empty if the bridge chooses one
}

func (p aPod) body() object {
	iface := object{"uid": p.uid, "network-type": "VXLAN"}
	if p.address != "" {
		iface["ip-address"] = p.address
	}
	return object{"pods": []object{{
		"uid": p.uid, "name": p.name, "network-NS": p.namespace, "host-ip-address": p.node, "interface": []object{iface},
	}}}
}

func podPath(uid string) string { return "pod:coe/pods/" + uid }

func (r rest) putPods(t testing.TB, pods ...aPod) {
	t.Helper()
	for _, p := range pods {
		r.change(t, http.MethodPut, podPath(p.uid), p.body())
	}
}

func (r rest) deletePods(t testing.TB, pods ...aPod) {
	t.Helper()
	for _, p := range pods {
		r.change(t, http.MethodDelete, podPath(p.uid), nil)
	}
}

func (r rest) putNode(t testing.TB, n int, name, address, podCIDR string) {
	t.Helper()
	node := object{"uid": uid("0", n), "host-name": name, "internal-ip-address": address}
	if podCIDR != "" {
		node["pod-cidr"] = podCIDR
	}
	r.change(t, http.MethodPut, "k8s-node:k8s-nodes-info/k8s-nodes/"+uid("0", n), object{"k8s-nodes": []object{node}})
}

// aService is the report of a service with one port by a source.
type aService struct {
	uid, namespace, name, address string
	port                          int
	target                        string
	endpoints                     []string // uids of pods
}

func (s aService) body() object {
	service := object{
		"uid": s.uid, "name": s.name, "network-NS": s.namespace, "cluster-ip-address": s.address,
		"service-ports": []object{{"name": "http", "port": s.port, "target-port": s.target}},
	}
	if len(s.endpoints) > 0 {
		service["endpoints"] = s.endpoints
	}
	return object{"services": []object{service}}
}

func servicePath(uid string) string { return "service:service-information/services/" + uid }

// sameSet returns an error with the missing and the unexpected elements.
func sameSet(want, got []string) error {
	want, got = slices.Sorted(slices.Values(want)), slices.Sorted(slices.Values(got))
	if slices.Equal(want, got) {
		return nil
	}
	return fmt.Errorf("want %q, got %q", want, got)
}
