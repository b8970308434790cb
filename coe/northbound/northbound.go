// Package northbound converts the COE northbound entities (pods, services, endpoints, nodes,
// DHCP pools) from and to their JSON form in the datastore. The form is one RFC 7951 object
// per entry, already validated and canonical by the YANG modules. The package does not know
// where the JSON comes from or goes to.
package northbound

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/dhcppool"
)

// addr is an inet:ip-address leaf; zero if the leaf is absent. An IPv6 zone is dropped,
// because pod addresses are not link-local.
type addr struct{ netip.Addr }

func (a *addr) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		return nil
	}
	parsed, err := netip.ParseAddr(string(text))
	a.Addr = parsed.WithZone("").Unmap()
	return err
}

type pod struct {
	UID       string         `json:"uid"`
	Name      string         `json:"name"`
	HostIP    addr           `json:"host-ip-address"`
	NetworkNS string         `json:"network-NS"`
	MAC       string         `json:"port-mac-address"`
	Interface []podInterface `json:"interface"`
	Profiles  []string       `json:"coe-profiles:security-profiles"`
}

type podInterface struct {
	UID            string `json:"uid"`
	Address        addr   `json:"ip-address"`
	NetworkID      string `json:"network-id"`
	NetworkType    string `json:"network-type"`
	SegmentationID uint32 `json:"segmentation-id"`
}

// noNetwork is the network-id that OpenDaylight's watcher sends for every interface.
const noNetwork = "00000000-0000-0000-0000-000000000000"

// Pod reads an entry of pod:coe/pods. A client may plug in anything, also a virtual machine that asks for its address, so
// the pod has DHCP.
func Pod(raw []byte) (*coe.Pod, error) {
	var in pod
	if err := json.Unmarshal(raw, &in); err != nil {
		return nil, fmt.Errorf("read pod: %w", err)
	}
	out := &coe.Pod{
		UID: in.UID, Name: in.Name, Namespace: namespace(in.NetworkNS),
		HostIP: in.HostIP.Addr, MAC: strings.ToLower(in.MAC), DHCP: true,
	}
	if len(in.Profiles) > 0 {
		out.Labels = out.Labels.WithProfiles(in.Profiles...)
	}
	for _, i := range in.Interface {
		if i.NetworkID != "" && i.NetworkID != noNetwork {
			out.Ignored |= coe.NetworkID
		}
		out.Interfaces = append(out.Interfaces, coe.PodInterface{
			UID: i.UID, Addresses: some(i.Address.Addr),
			NetworkType: i.NetworkType, SegmentationID: i.SegmentationID,
		})
	}
	return out, nil
}

type service struct {
	UID            string        `json:"uid"`
	Name           string        `json:"name"`
	NetworkNS      string        `json:"network-NS"`
	ClusterIP      addr          `json:"cluster-ip-address"`
	ExternalIPs    []addr        `json:"external-ip-address"`
	LoadBalancerIP addr          `json:"load-balancer-IP"`
	IngressIPs     []addr        `json:"ingress-ip-address"`
	Ports          []servicePort `json:"service-ports"`
	Endpoints      []string      `json:"endpoints"`
}

type servicePort struct {
	Name       string `json:"name"`
	Port       int32  `json:"port"`
	TargetPort string `json:"target-port"`
	NodePort   int32  `json:"node-port"`
}

// Service reads an entry of service:service-information/services. Its ports are TCP, because
// the model has no protocol. An invalid port number is an error.
func Service(raw []byte) (*coe.Service, error) {
	var in service
	if err := json.Unmarshal(raw, &in); err != nil {
		return nil, fmt.Errorf("read service: %w", err)
	}
	out := &coe.Service{
		UID: in.UID, Name: in.Name, Namespace: namespace(in.NetworkNS),
		ClusterIPs: some(in.ClusterIP.Addr), PodEndpoints: in.Endpoints,
	}
	for _, a := range append(append(in.ExternalIPs, in.LoadBalancerIP), in.IngressIPs...) {
		if a.IsValid() {
			out.ExternalIPs = append(out.ExternalIPs, a.Addr)
		}
	}
	for _, p := range in.Ports {
		port, err := portNumber(p.Port)
		if err != nil {
			return nil, fmt.Errorf("read service %s: port %q: %w", in.UID, p.Name, err)
		}
		out.Ports = append(out.Ports, coe.ServicePort{
			Name: p.Name, Protocol: "tcp", Port: port, TargetPort: p.TargetPort, NodePort: uint16(p.NodePort),
		})
	}
	return out, nil
}

type endpoints struct {
	UID       string `json:"uid"`
	Name      string `json:"name"`
	NetworkNS string `json:"network-NS"`
	Addresses []struct {
		Address addr `json:"ip-address"`
	} `json:"endpoint-addresses"`
	Ports []struct {
		Name string `json:"name"`
		Port int32  `json:"port"`
	} `json:"endpoint-ports"`
}

// Endpoints reads an entry of service:endpoints-info/endpoints. An invalid port number is an
// error.
func Endpoints(raw []byte) (*coe.Endpoints, error) {
	var in endpoints
	if err := json.Unmarshal(raw, &in); err != nil {
		return nil, fmt.Errorf("read endpoints: %w", err)
	}
	out := &coe.Endpoints{UID: in.UID, Name: in.Name, Namespace: namespace(in.NetworkNS)}
	for _, a := range in.Addresses {
		if a.Address.IsValid() {
			out.Addresses = append(out.Addresses, a.Address.Addr)
		}
	}
	for _, p := range in.Ports {
		port, err := portNumber(p.Port)
		if err != nil {
			return nil, fmt.Errorf("read endpoints %s: port %q: %w", in.UID, p.Name, err)
		}
		out.Ports = append(out.Ports, coe.EndpointPort{Name: p.Name, Protocol: "tcp", Port: port})
	}
	return out, nil
}

func portNumber(n int32) (uint16, error) {
	if n < 1 || n > 65535 {
		return 0, fmt.Errorf("%d is not a port number; want 1..65535", n)
	}
	return uint16(n), nil
}

type node struct {
	UID        string `json:"uid"`
	HostName   string `json:"host-name"`
	ExternalIP addr   `json:"external-ip-address"`
	InternalIP addr   `json:"internal-ip-address"`
	PodCIDR    string `json:"pod-cidr"`
}

// Node reads an entry of k8s-node:k8s-nodes-info/k8s-nodes. An invalid pod-cidr is an error;
// an empty one is allowed.
func Node(raw []byte) (*coe.Node, error) {
	var in node
	if err := json.Unmarshal(raw, &in); err != nil {
		return nil, fmt.Errorf("read node: %w", err)
	}
	out := &coe.Node{
		UID: in.UID, HostName: in.HostName,
		InternalIP: in.InternalIP.Addr, ExternalIP: in.ExternalIP.Addr,
	}
	if in.PodCIDR == "" {
		return out, nil
	}
	cidr, err := netip.ParsePrefix(in.PodCIDR)
	if err != nil {
		return nil, fmt.Errorf("read node %s: pod-cidr: %w", in.UID, err)
	}
	out.PodCIDRs = []netip.Prefix{cidr.Masked()}
	return out, nil
}

type network struct {
	NetworkID string `json:"network-id"`
	Pools     []struct {
		Subnet  netip.Prefix `json:"subnet"`
		From    addr         `json:"allocate-from"`
		To      addr         `json:"allocate-to"`
		Gateway addr         `json:"gateway"`
		DNS     []addr       `json:"dns-servers"`
		DHCP    bool         `json:"coe-dhcp:dhcp"`
	} `json:"allocation-pool"`
}

// Pools reads an entry of dhcp_allocation_pool:dhcp_allocation_pool/network: the pools of one
// network, sorted by subnet. It does not check the pools against each other, as
// dhcppool.Validate does.
func Pools(raw []byte) ([]dhcppool.Pool, error) {
	var in network
	if err := json.Unmarshal(raw, &in); err != nil {
		return nil, fmt.Errorf("read pools: %w", err)
	}
	var out []dhcppool.Pool
	for _, p := range in.Pools {
		pool := dhcppool.Pool{
			Network: in.NetworkID, Subnet: p.Subnet.Masked(),
			From: p.From.Addr, To: p.To.Addr, Gateway: p.Gateway.Addr, DHCP: p.DHCP,
		}
		for _, a := range p.DNS {
			pool.DNS = append(pool.DNS, a.Addr)
		}
		out = append(out, pool)
	}
	return out, nil
}

// some returns a list of the address; nil if the address is invalid.
func some(a netip.Addr) []netip.Addr {
	if !a.IsValid() {
		return nil
	}
	return []netip.Addr{a}
}

func namespace(name string) string {
	if name == "" {
		return coe.DefaultNamespace
	}
	return name
}
