package identity

import (
	"net/netip"
	"strings"

	"github.com/google/uuid"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// BindingUUID returns the UUID of the Static_MAC_Binding of an address at a router port: the table has no external_ids. Another port
// makes another row: ovn-northd 25.03 does not follow a row to another port, and cannot delete the former port's router then.
func (o Owner) BindingUUID(head netvirt.Key, port string, address netip.Addr) string {
	return o.UUID(nb.StaticMACBindingTable, head, port+" "+address.String())
}

// IsOwnBinding reports whether a row is of a bridge. Its UUID is made from names. Other programs have random UUIDs.
func IsOwnBinding(row *nb.StaticMACBinding) bool {
	id, err := uuid.Parse(row.UUID)
	return err == nil && id.Version() == 5 && strings.HasPrefix(row.LogicalPort, "router:")
}

// BindsFor reports whether a row is ours, and of the group of a head.
func (o Owner) BindsFor(head netvirt.Key, row *nb.StaticMACBinding) bool {
	address, err := netip.ParseAddr(row.IP)
	return err == nil && o.BindingUUID(head, row.LogicalPort, address) == row.UUID
}

// leftBinding begins the names of the objects of LeftBinding. No interface has such a name.
const leftBinding = "MAC binding "

// LeftBinding returns the object that Read returns for a Static_MAC_Binding whose group has no other row: an interface that is never wanted.
func LeftBinding(uuid string) netvirt.Object {
	return netvirt.Interface{Name: leftBinding + uuid, ParentInterface: damagedMark}
}

// ParseLeftBinding returns the UUID of the row of a head that LeftBinding returned.
func ParseLeftBinding(head netvirt.Key) (uuid string, ok bool) {
	if head.Kind != netvirt.KindInterface {
		return "", false
	}
	return strings.CutPrefix(head.Name, leftBinding)
}
