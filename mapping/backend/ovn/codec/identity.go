package codec

import (
	"crypto/sha1"
	"maps"
	"strings"

	"github.com/google/uuid"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/ovsdb"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Every row of ours has these keys in its external_ids, if its table has that column.
const (
	IDOwner = "coe-bridge/owner"
	idKind  = "coe-bridge/kind" // with idName, the key of the group's head
	idName  = "coe-bridge/name"
	IDRole  = "coe-bridge/role" // distinguishes rows of one group and table
)

// Fields of objects in the external_ids of their rows.
const (
	idNamespace  = "coe-bridge/namespace"
	idSegment    = "coe-bridge/segment-type"
	idVNI        = "coe-bridge/segmentation-id"
	idPhysical   = "coe-bridge/physical-network"
	idSubnets    = "coe-bridge/subnets"
	idRD         = "coe-bridge/route-distinguisher"
	idTransit    = "coe-bridge/transit"
	idVPN        = "coe-bridge/vpn"
	idELAN       = "coe-bridge/elan"
	idPrefix     = "coe-bridge/prefix"
	idGateway    = "coe-bridge/gateway"
	idDNS        = "coe-bridge/dns"
	idLease      = "coe-bridge/lease-time"
	idPod        = "coe-bridge/pod"
	idPodUID     = "coe-bridge/pod-uid"
	idUID        = "coe-bridge/interface-uid"
	idParent     = "coe-bridge/parent-interface"
	idDHCP       = "coe-bridge/dhcp"
	idChassis    = "coe-bridge/chassis"
	idService    = "coe-bridge/service"
	idAffinity   = "coe-bridge/affinity"
	idPlaces     = "coe-bridge/places"
	idNear       = "coe-bridge/near/"             // and the VIP
	idMACEntry   = "coe-bridge/static-mac-entry/" // and the address
	idAdjacency  = "coe-bridge/adjacency/"        // and the address
	idNetwork    = "coe-bridge/network"
	idAddress    = "coe-bridge/address"
	idHostName   = "coe-bridge/host-name"
	idServiceIP  = "coe-bridge/service-address"
	idEdgeIP     = "coe-bridge/edge-address"
	idMAC        = "coe-bridge/mac-address"
	idNextHop    = "coe-bridge/next-hop"
	idLink       = "coe-bridge/link"
	idPods       = "coe-bridge/pods"
	idPinned     = "coe-bridge/pinned"
	idInside     = "coe-bridge/inside"
	idOnNode     = "coe-bridge/on-node"
	idLinks      = "coe-bridge/gateway-links"
	idServices   = "coe-bridge/services"
	idExternal   = "coe-bridge/external"
	idNodes      = "coe-bridge/nodes"
	idOwn        = "coe-bridge/own"
	idPorts      = "coe-bridge/source-ports"
	idWaits      = "coe-bridge/waits/"   // and the VIP
	idSources    = "coe-bridge/sources/" // and the VIP
	idGroup      = "coe-bridge/remote-group"
	idNumber     = "coe-bridge/number"
	idOneWay     = "coe-bridge/one-way"
	idActive     = "coe-bridge/active"
	idHost       = "coe-bridge/host/" // and its number; the address of the node, a space and its chassis
	idIsolates   = "coe-bridge/isolates"
	idLogs       = "coe-bridge/logs"
	idWithholds  = "coe-bridge/withholds"
	idYields     = "coe-bridge/yields"
	idPrefixes   = "coe-bridge/prefixes"
	idACE        = "coe-bridge/ace/"         // and the name
	idFloating   = "coe-bridge/floating-ip/" // and internal-ip/port-name
	idPrefix6    = "coe-bridge/ipv6-prefix"
	idGateway6   = "coe-bridge/ipv6-gateway"
	idAddress6   = "coe-bridge/ipv6-address"
	idServiceIP6 = "coe-bridge/ipv6-service-address"
	idEdgeIP6    = "coe-bridge/ipv6-edge-address"
	idNextHop6   = "coe-bridge/ipv6-next-hop"
	idLink6      = "coe-bridge/ipv6-link"
	idSecond     = "coe-bridge/second-node-address"
)

// space is the namespace of our rows' UUIDs. It must never change.
var space = uuid.MustParse("5d3b2f0e-6f0c-5a2e-9b6e-0c0eb41d9e00")

// DefaultOwner is the owner of rows unless the configuration names another.
const DefaultOwner = "coe-bridge"

// Codec turns groups of objects into rows, and back, for one owner.
type Codec struct {
	Owner  string
	Layout Layout
}

// uuid returns the UUID of a row: a hash of its owner, table, group and role. So a row
// can be referred to, changed and deleted without reading the database, and the server
// refuses to insert it twice.
func (c Codec) uuid(table string, head netvirt.Key, role string) string {
	var b [256]byte
	name := append(b[:0], space[:]...)
	for i, part := range [...]string{c.Owner, table, head.Kind.String(), head.Name, role} {
		if i > 0 {
			name = append(name, 0)
		}
		name = append(name, part...)
	}
	hash := sha1.Sum(name)
	id := uuid.UUID(hash[:16])
	id[6] = id[6]&0x0f | 5<<4 // version 5 of RFC 4122, section 4.3
	id[8] = id[8]&0x3f | 0x80
	return id.String()
}

// mark returns the external_ids of a row, with the given pairs of key and value added.
// It leaves out empty values.
func (c Codec) mark(head netvirt.Key, role string, pairs ...string) map[string]string {
	ids := make(map[string]string, 3+len(pairs)/2)
	ids[IDOwner], ids[idKind], ids[idName] = c.Owner, head.Kind.String(), head.Name
	pairs = append(pairs, IDRole, role)
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			ids[pairs[i]] = pairs[i+1]
		}
	}
	return ids
}

// abridge deletes the pairs of ids that other columns of a row imply. A key that is implied, and that ids does not have, gets an empty value.
func abridge(ids, implied map[string]string) {
	for key := range implied {
		if _, has := ids[key]; !has {
			ids[key] = ""
		}
	}
	maps.DeleteFunc(ids, isIn(implied))
}

func isIn(pairs map[string]string) func(key, value string) bool {
	return func(key, value string) bool { return value == pairs[key] }
}

// HeadText returns the kind and the name of the head of a row's group, for people.
func HeadText(ids map[string]string) string { return ids[idKind] + " " + ids[idName] }

// Marked returns the head of the group that a row belongs to; ok reports whether the row
// is ours. Its UUID must be the hash of its marks, so copied marks do not make a row ours. A row of
// a table without external_ids is ours only if its name says so (see encodeNode and encodeVPN). So are the port of a pod and the
// router of a vpn-instance that have lost their marks.
func (c Codec) Marked(r ovsdb.Row) (head netvirt.Key, ok bool) {
	if group, is := r.Value.(*nb.LoadBalancerGroup); is {
		if vpn, of := strings.CutPrefix(group.Name, c.vpnGroup()); of {
			return vpnKey(vpn), c.balancersUUID(vpnKey(vpn)) == group.UUID
		}
		node, found := c.parseNodeGroup(group.Name)
		return node.Key(), found && c.balancersUUID(node.Key()) == group.UUID
	}
	ids := r.ExternalIDs()
	if kind, known := headKinds[ids[idKind]]; known && ids[IDOwner] == c.Owner {
		head = netvirt.Key{Kind: kind, Name: ids[idName]}
		return head, c.uuid(r.Table.Name, head, ids[IDRole]) == r.UUID()
	}
	switch row := r.Value.(type) {
	case *nb.LogicalSwitchPort:
		head = netvirt.Key{Kind: netvirt.KindInterface, Name: row.Name}
	case *nb.LogicalRouter:
		head = vpnKey(row.Name)
	default:
		return netvirt.Key{}, false
	}
	return head, c.uuid(r.Table.Name, head, "") == r.UUID()
}

// Selected returns the external_ids of the rows of a table that may be ours; nil for all rows. The port of a pod that has
// lost its marks must be found also if the pod is gone: otherwise it keeps the addresses of a later pod. A router keeps the
// addresses of its namespace.
func (c Codec) Selected(t *ovsdb.Table) map[string]string {
	if t.Name == nb.LogicalSwitchPortTable || t.Name == nb.LogicalRouterTable {
		return nil
	}
	return map[string]string{IDOwner: c.Owner}
}
