package ovn

import (
	"crypto/sha1"

	"github.com/google/uuid"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Every row of ours carries these external_ids, where its table has that column.
const (
	idOwner = "coe-bridge/owner" // whose it is
	idKind  = "coe-bridge/kind"  // with idName, the key of the object that its group is named after
	idName  = "coe-bridge/name"
	idRole  = "coe-bridge/role" // tells rows of one group and table apart
)

// What else of an object a row carries.
const (
	idNamespace = "coe-bridge/namespace"
	idSegment   = "coe-bridge/segment-type"
	idVNI       = "coe-bridge/segmentation-id"
	idRD        = "coe-bridge/route-distinguisher"
	idTransit   = "coe-bridge/transit"
	idVPN       = "coe-bridge/vpn"
	idELAN      = "coe-bridge/elan"
	idPrefix    = "coe-bridge/prefix"
	idGateway   = "coe-bridge/gateway"
	idDNS       = "coe-bridge/dns"
	idLease     = "coe-bridge/lease-time"
	idPod       = "coe-bridge/pod"
	idPodUID    = "coe-bridge/pod-uid"
	idUID       = "coe-bridge/interface-uid"
	idParent    = "coe-bridge/parent-interface"
	idChassis   = "coe-bridge/chassis"
	idService   = "coe-bridge/service"
	idAffinity  = "coe-bridge/affinity"
	idMACEntry  = "coe-bridge/static-mac-entry/" // and the address
	idAdjacency = "coe-bridge/adjacency/"        // and the address
	idNetwork   = "coe-bridge/network"
	idAddress   = "coe-bridge/address"
	idServiceIP = "coe-bridge/service-address"
	idMAC       = "coe-bridge/mac-address"
	idFloating  = "coe-bridge/floating-ip/" // and internal-ip/port-name
)

// The keys of NB_Global's external_ids that name the writer, and whose epochs these
// are.
const (
	idEpoch     = "coe-bridge/epoch"
	idDatastore = "coe-bridge/datastore"
)

// space is the namespace of our rows' UUIDs. It must never change.
var space = uuid.MustParse("5d3b2f0e-6f0c-5a2e-9b6e-0c0eb41d9e00")

// codec turns groups of objects into rows, and back, for one owner.
type codec struct {
	owner string
}

// uuid is the UUID of a row. It follows from what the row is for, so that a row
// can be referred to, changed and deleted without a look at the database, and
// an insert of what is there is refused.
func (c codec) uuid(table string, head netvirt.Key, role string) string {
	var b [256]byte
	name := append(b[:0], space[:]...)
	for i, part := range [...]string{c.owner, table, head.Kind.String(), head.Name, role} {
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

// mark are the external_ids of a row, to which pairs of key and value are
// added; what is empty is left out.
func (c codec) mark(head netvirt.Key, role string, pairs ...string) map[string]string {
	ids := map[string]string{idOwner: c.owner, idKind: head.Kind.String(), idName: head.Name}
	pairs = append(pairs, idRole, role)
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			ids[pairs[i]] = pairs[i+1]
		}
	}
	return ids
}

// marked returns the head of the group that a row belongs to, and whether it is
// a row of ours: one whose marks are those that its UUID was made of.
func (c codec) marked(t *table, r row) (netvirt.Key, bool) {
	ids := t.idsOf(r)
	kind, known := headKinds[ids[idKind]]
	head := netvirt.Key{Kind: kind, Name: ids[idName]}
	if !known || ids[idOwner] != c.owner || c.uuid(t.name, head, ids[idRole]) != t.uuidOf(r) {
		return netvirt.Key{}, false
	}
	return head, true
}
