package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cloudprovider "k8s.io/cloud-provider"
)

// balancer gives addresses to services, and routes them. It may be used concurrently.
type balancer struct {
	addresses netip.Prefix
	source    netip.Addr
	health    http.Client

	mu       sync.Mutex
	services map[types.UID]*balanced
}

// balanced is a service with an address.
type balanced struct {
	address netip.Addr
	health  int32        // the port of health checks; 0 if each node serves
	sticky  bool         // a client keeps its node
	nodes   []netip.Addr // of the cluster
}

var _ cloudprovider.LoadBalancer = (*balancer)(nil)

// checkTimeout bounds a health check.
const checkTimeout = time.Second

func newBalancer(addresses netip.Prefix, source netip.Addr) *balancer {
	return &balancer{
		addresses: addresses, source: source, services: map[types.UID]*balanced{},
		health: http.Client{Timeout: checkTimeout, Transport: &http.Transport{DisableKeepAlives: true}},
	}
}

// GetLoadBalancer implements cloudprovider.LoadBalancer.
func (b *balancer) GetLoadBalancer(_ context.Context, _ string, s *v1.Service) (*v1.LoadBalancerStatus, bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	one := b.services[s.UID]
	if one == nil {
		return nil, false, nil
	}
	return one.status(), true, nil
}

// GetLoadBalancerName implements cloudprovider.LoadBalancer.
func (b *balancer) GetLoadBalancerName(_ context.Context, _ string, s *v1.Service) string {
	return string(s.UID)
}

// EnsureLoadBalancer implements cloudprovider.LoadBalancer.
func (b *balancer) EnsureLoadBalancer(_ context.Context, _ string, s *v1.Service, nodes []*v1.Node) (*v1.LoadBalancerStatus, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	one := b.services[s.UID]
	if one == nil {
		address, err := b.free()
		if err != nil {
			return nil, err
		}
		one = &balanced{address: address}
		b.services[s.UID] = one
	}
	one.health, one.nodes = 0, addressesOf(nodes)
	one.sticky = s.Spec.SessionAffinity == v1.ServiceAffinityClientIP
	if s.Spec.ExternalTrafficPolicy == v1.ServiceExternalTrafficPolicyLocal {
		one.health = s.Spec.HealthCheckNodePort
	}
	return one.status(), nil
}

// UpdateLoadBalancer implements cloudprovider.LoadBalancer.
func (b *balancer) UpdateLoadBalancer(ctx context.Context, cluster string, s *v1.Service, nodes []*v1.Node) error {
	_, err := b.EnsureLoadBalancer(ctx, cluster, s, nodes)
	return err
}

// EnsureLoadBalancerDeleted implements cloudprovider.LoadBalancer.
func (b *balancer) EnsureLoadBalancerDeleted(_ context.Context, _ string, s *v1.Service) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.services, s.UID)
	return nil
}

// free returns the lowest address that no service has.
func (b *balancer) free() (netip.Addr, error) {
	taken := map[netip.Addr]bool{b.addresses.Addr(): true}
	for _, s := range b.services {
		taken[s.address] = true
	}
	a := b.addresses.Addr()
	for taken[a] {
		a = a.Next()
	}
	if !b.addresses.Contains(a) {
		return a, fmt.Errorf("no address of %s is free", b.addresses)
	}
	return a, nil
}

func (s *balanced) status() *v1.LoadBalancerStatus {
	mode := v1.LoadBalancerIPModeVIP
	return &v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{{IP: s.address.String(), IPMode: &mode}}}
}

// addressesOf returns the IPv4 addresses of nodes, sorted.
func addressesOf(nodes []*v1.Node) (all []netip.Addr) {
	for _, n := range nodes {
		for _, a := range n.Status.Addresses {
			if addr, err := netip.ParseAddr(a.Address); err == nil && addr.Is4() && a.Type == v1.NodeInternalIP {
				all = append(all, addr)
			}
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return all
}

// spread makes the kernel choose a node for each connection of a client.
func spread() error {
	return os.WriteFile("/proc/sys/net/ipv4/fib_multipath_hash_policy", []byte("1"), 0o644)
}

// routeInterval is how often routes are compared with services and the health of nodes.
const routeInterval = 300 * time.Millisecond

// route keeps the routes until ctx is done, or until it cannot write one.
func (b *balancer) route(ctx context.Context) error {
	if err := b.dropOthers(); err != nil {
		return err
	}
	has := map[netip.Addr][]netip.Addr{}
	for {
		wants := b.healthy(ctx)
		for address := range has {
			if len(wants[address]) == 0 {
				if err := netlink.RouteDel(&netlink.Route{Dst: whole(address)}); err != nil {
					return fmt.Errorf("delete the route to %s: %w", address, err)
				}
				delete(has, address)
			}
		}
		for address, nodes := range wants {
			if slices.Equal(has[address], nodes) {
				continue
			}
			if err := b.lead(address, nodes); err != nil {
				return err
			}
			has[address] = nodes
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(routeInterval):
		}
	}
}

// dropOthers drops packets to addresses that lead to no node, as routers outside do. Their senders get no error: the kernel
// drops what comes back on the loopback link for an address of somebody else.
func (b *balancer) dropOthers() error {
	loopback, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	r := netlink.Route{Dst: prefix(b.addresses), LinkIndex: loopback.Attrs().Index, Scope: netlink.SCOPE_LINK, Src: b.source.AsSlice()}
	if err := netlink.RouteReplace(&r); err != nil {
		return fmt.Errorf("route %s to nobody: %w", b.addresses, err)
	}
	return nil
}

// lead routes an address to nodes.
func (b *balancer) lead(address netip.Addr, nodes []netip.Addr) error {
	r := netlink.Route{Dst: whole(address), Src: b.source.AsSlice()}
	for _, n := range nodes {
		r.MultiPath = append(r.MultiPath, &netlink.NexthopInfo{Gw: n.AsSlice()})
	}
	if err := netlink.RouteReplace(&r); err != nil {
		return fmt.Errorf("route %s to %v: %w", address, nodes, err)
	}
	return nil
}

func whole(a netip.Addr) *net.IPNet { return prefix(netip.PrefixFrom(a, a.BitLen())) }

func prefix(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// healthy returns the nodes to which each address leads: those that serve it, and one of them if clients keep their node.
func (b *balancer) healthy(ctx context.Context) map[netip.Addr][]netip.Addr {
	b.mu.Lock()
	all := make([]balanced, 0, len(b.services))
	for _, s := range b.services {
		all = append(all, *s)
	}
	b.mu.Unlock()
	serving := map[netip.Addr][]netip.Addr{}
	for _, s := range all {
		nodes := slices.DeleteFunc(slices.Clone(s.nodes), func(n netip.Addr) bool {
			return s.health != 0 && !b.serves(ctx, n, s.health)
		})
		if s.sticky && len(nodes) > 1 {
			nodes = nodes[:1]
		}
		serving[s.address] = nodes
	}
	return serving
}

// serves reports whether a node answers health checks on a port.
func (b *balancer) serves(ctx context.Context, node netip.Addr, port int32) bool {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(node.String(), strconv.Itoa(int(port)))+"/healthz", nil)
	if err != nil {
		return false
	}
	answer, err := b.health.Do(r)
	if err != nil {
		return false
	}
	_ = answer.Body.Close()
	return answer.StatusCode == http.StatusOK
}
