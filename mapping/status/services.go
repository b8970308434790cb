package status

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe/state"
	"github.com/coe-bridge/coe-bridge/mapping"
	"github.com/coe-bridge/coe-bridge/mapping/service"
)

// Services is the container coe-status:services.
type Services struct {
	Services []Service `json:"service,omitempty"`
}

// Service says where clients reach a service.
type Service struct {
	UID       string       `json:"uid"`
	Namespace string       `json:"namespace"`
	Name      string       `json:"name,omitempty"`
	Cluster   []netip.Addr `json:"cluster-address,omitempty"`
	Ready     int          `json:"ready-endpoints"`
	Draining  int          `json:"draining-endpoints"`
	// Policy is externalTrafficPolicy; empty for a service that is not exposed.
	Policy  string    `json:"external-traffic-policy,omitempty"`
	Exposed []Exposed `json:"exposed,omitempty"`
}

// The ways by which clients outside reach a service.
const (
	ByNodePort        = "node-port"
	ByExternalAddress = "external-address"
	ByLoadBalancer    = "load-balancer"
	ByGateway         = "gateway"
)

// Exposed is a port at which clients outside reach a service.
type Exposed struct {
	Way         string     `json:"way"`
	Address     netip.Addr `json:"address,omitzero"` // zero for every address of the nodes
	Protocol    string     `json:"protocol"`
	Port        uint16     `json:"port"`
	ServicePort uint16     `json:"service-port"`
	// Restricted: only clients in Sources reach it.
	Restricted bool           `json:"restricted,omitempty"`
	Sources    []netip.Prefix `json:"source-range,omitempty"`
	// Nodes are the nodes with endpoints, if only these answer.
	Nodes []netip.Addr `json:"node,omitempty"`
}

// ServicesOf says where clients reach the services of a store.
func ServicesOf(store *state.Store, s mapping.Settings) (out Services) {
	for _, namespace := range store.Namespaces() {
		if !store.HasServices(namespace) {
			continue
		}
		for _, r := range service.Reaches(store.View(namespace), s.ServiceSettings()) {
			out.Services = append(out.Services, serviceOf(&r))
		}
	}
	return out
}

// atNodes reports whether the address of an exposed port means every address of the nodes.
func atNodes(a netip.Addr) bool { return !a.IsValid() || a.IsUnspecified() }

func serviceOf(r *service.Reach) Service {
	out := Service{
		UID: r.Service.UID, Namespace: r.Service.Namespace, Name: r.Service.Name, Cluster: r.Cluster, Ready: r.Ready, Draining: r.Draining,
	}
	if len(r.Exposed) > 0 {
		out.Policy = "Cluster"
		if r.Service.Local {
			out.Policy = "Local"
		}
	}
	for i := range r.Exposed {
		e := &r.Exposed[i]
		one := Exposed{
			Way: ByNodePort, Address: e.Address, Protocol: e.Protocol, Port: e.Port, ServicePort: e.To.Port(), Restricted: e.Restricted, Sources: e.Sources,
		}
		if e.Local {
			one.Nodes = slices.SortedFunc(maps.Keys(e.Endpoints), netip.Addr.Compare)
		}
		switch {
		case slices.Contains(r.Service.LoadBalancerIPs, e.Address):
			one.Way = ByLoadBalancer
		case !atNodes(e.Address):
			one.Way = ByExternalAddress
		}
		out.Exposed = append(out.Exposed, one)
		for _, g := range r.Gateways {
			if atNodes(e.Address) && g.Leads(e.To.Addr()) && (!e.Local || slices.Contains(one.Nodes, g.Node)) {
				at := one
				at.Way, at.Address = ByGateway, g.In(e.To.Addr()).Address.Addr()
				if e.Local {
					at.Nodes = []netip.Addr{g.Node}
				}
				out.Exposed = append(out.Exposed, at)
			}
		}
	}
	return out
}
