package codec

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/identity"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/ovsdb"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// gatewayBalancer is what the GatewayVIPs in one load balancer have in common: the load balancer is for one gateway, and its
// options are for all.
type gatewayBalancer struct {
	gateway  netip.Addr
	protocol netvirt.Protocol
	local    bool
}

// Begin and end of the role of a gatewayBalancer.
const (
	roleAtGateway = "gateway/"
	roleLocal     = "/local"
)

func (b gatewayBalancer) role() string {
	role := roleAtGateway + b.gateway.String() + "/" + string(b.protocol)
	if b.local {
		role += roleLocal
	}
	return role
}

// parseGatewayRole parses the result of role, without whether it is local.
func parseGatewayRole(role string) (gateway netip.Addr, protocol netvirt.Protocol, ok bool) {
	text, found := strings.CutPrefix(role, roleAtGateway)
	address, rest, _ := strings.Cut(strings.TrimSuffix(text, roleLocal), "/")
	gateway, err := netip.ParseAddr(address)
	return gateway, netvirt.Protocol(rest), found && err == nil
}

// encodeGatewayVIPs adds the load balancers of a service at gateways. Each is a load balancer of the gateway's router, if
// this works and serves. A load balancer of OVN does not know sources, so ACLs decide who reaches a restricted address.
func (c Codec) encodeGatewayVIPs(set *ovsdb.RowSet, k netvirt.Key, o netvirt.Service, vips []netvirt.GatewayVIP, look Lookup) {
	all := map[gatewayBalancer]*nb.LoadBalancer{}
	for _, v := range vips {
		of := gatewayBalancer{v.Gateway, v.Protocol, v.Local}
		gateway, _ := look(netvirt.GatewayKey(v.Gateway)).(netvirt.Gateway)
		serves := gateway.Services && gateway.Link.IsValid()
		lb := all[of]
		if lb == nil {
			lb = c.balancer(k, o, v.Protocol, of.role(), nil)
			hold(lb, o)
			if o.Affinity > 0 { // a learned client costs a flow, and there is no limit of clients outside
				delete(lb.Options, "affinity_timeout")
				lb.SelectionFields = []string{"ip_src"}
			}
			if of.local {
				lb.Options["skip_snat"] = "true"
			}
			all[of] = lb
			set.Add(lb)
			if serves {
				set.Link(nb.LogicalRouterTable, c.routerUUID(gateway.Key()), "load_balancer", lb.UUID)
			}
		}
		vip := endpointText(v.VIP)
		lb.Vips[vip] = endpointTexts(v.Endpoints)
		if v.Waits {
			lb.Options["reject"] = "false"
			lb.ExternalIDs[idWaits+vip] = flag(true)
		}
		if !v.Restricted {
			continue
		}
		lb.ExternalIDs[idSources+vip] = string(v.Sources)
		if serves {
			c.restrict(set, k, of.role(), v)
		}
	}
}

// restrict lets only the sources of a GatewayVIP come in to it.
func (c Codec) restrict(set *ovsdb.RowSet, k netvirt.Key, role string, v netvirt.GatewayVIP) {
	role += " " + endpointText(v.VIP)
	family := familyOf(v.VIP.Addr())
	to := fmt.Sprintf("%s.dst == %s && %s.dst == %d", family, v.VIP.Addr(), v.Protocol, v.VIP.Port())
	c.fromOutside(set, k, v.Gateway, role+" others", priorityRestricted, nb.ACLActionDrop, to)
	if v.Sources != "" {
		c.fromOutside(set, k, v.Gateway, role+" sources", priorityAdmitted, nb.ACLActionAllow, fmt.Sprintf("%s && %s.src == %s", to, family, anyOf(v.Sources)))
	}
}

// decodeGatewayVIPs decodes a load balancer of encodeGatewayVIPs. of has what its objects have in common.
func decodeGatewayVIPs(lb *nb.LoadBalancer, of netvirt.GatewayVIP) (all []netvirt.Object) {
	ids := lb.ExternalIDs
	of.Local = strings.HasSuffix(ids[identity.IDRole], roleLocal)
	for vip, endpoints := range lb.Vips {
		v, ok := of, false
		if v.VIP, ok = parseEndpoint(vip); !ok {
			continue
		}
		v.Endpoints, v.Waits = parseEndpoints(endpoints), ids[idWaits+vip] != ""
		sources, restricted := ids[idSources+vip]
		v.Sources, _ = netvirt.ParsePrefixList(sources)
		v.Restricted = restricted
		all = append(all, v)
	}
	return all
}
