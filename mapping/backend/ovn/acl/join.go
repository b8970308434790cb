package acl

import (
	"net/netip"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/identity"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/ovsdb"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Join makes a port, given its UUID, a member of its port groups, and its addresses members of the address sets
// of its remote groups. The ACL of a node or a remote group that does not exist yet is left out; the port is encoded
// again when it is created. So is a damaged remote group, whose repair adds all its members.
func Join(owner identity.Owner, set *ovsdb.RowSet, port string, o netvirt.InterfaceACL, addresses []netip.Addr, look func(netvirt.Key) netvirt.Object) {
	for _, name := range o.SecurityGroups.All() {
		if netvirt.IsOfNode(name) && look(aclKey(name)) == nil {
			continue
		}
		set.Link(nb.PortGroupTable, portGroupUUID(owner, name), "ports", port)
	}
	for _, name := range o.RemoteGroups.All() {
		if group, ok := look(remoteGroupKey(name)).(netvirt.RemoteGroup); !ok || identity.IsDamaged(group) || !group.Admits(o.Namespace) {
			continue
		}
		for _, a := range addresses {
			set.Link(nb.AddressSetTable, addressSetUUID(owner, name, netvirt.FamilyOf(a)), "addresses", a.String())
		}
	}
}
