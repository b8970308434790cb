package acl

import (
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/identity"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/ovsdb"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// idPrefixes has the prefixes of a remote group in the external_ids of its first address set.
const idPrefixes = "coe-bridge/prefixes"

func remoteGroupKey(name string) netvirt.Key {
	return netvirt.Key{Kind: netvirt.KindRemoteGroup, Name: name}
}

// addressSetUUID returns the UUID of an address set. Its role is OVN's word for its family.
func addressSetUUID(owner identity.Owner, group string, f netvirt.Family) string {
	return owner.UUID(nb.AddressSetTable, remoteGroupKey(group), matchFamily(f))
}

// AddressSetName returns the name of the address set of a remote group for a family, for use in a match.
func AddressSetName(owner identity.Owner, group string, f netvirt.Family) string {
	return matchName(owner, group) + ".." + matchFamily(f)
}

// EncodeRemoteGroup adds the address sets of a remote group, with its prefixes. A prefix has
// always a length, so it differs from every address of a member.
func EncodeRemoteGroup(owner identity.Owner, set *ovsdb.RowSet, k netvirt.Key, objects netvirt.Model) {
	o, ok := objects[k].(netvirt.RemoteGroup)
	if !ok {
		return
	}
	for _, f := range []netvirt.Family{netvirt.IPv4, netvirt.IPv6} {
		row := &nb.AddressSet{
			UUID: addressSetUUID(owner, o.Name, f), Name: AddressSetName(owner, o.Name, f),
			ExternalIDs: owner.Mark(k, matchFamily(f), identity.IDNamespace, o.Namespace),
		}
		if f == netvirt.IPv4 && o.Prefixes != "" {
			row.ExternalIDs[idPrefixes] = string(o.Prefixes)
		}
		set.Add(row)
	}
	for _, p := range o.Prefixes.All() {
		set.Link(nb.AddressSetTable, addressSetUUID(owner, o.Name, netvirt.FamilyOf(p.Addr())), "addresses", p.String())
	}
}

// DecodeRemoteGroup decodes the first address set of EncodeRemoteGroup. The other one holds no
// object.
func DecodeRemoteGroup(k netvirt.Key, row *nb.AddressSet) []netvirt.Object {
	if row.ExternalIDs[identity.IDRole] != matchFamily(netvirt.IPv4) {
		return nil
	}
	prefixes, ok := netvirt.ParsePrefixList(row.ExternalIDs[idPrefixes])
	if !ok {
		return nil
	}
	return []netvirt.Object{netvirt.RemoteGroup{Name: k.Name, Namespace: row.ExternalIDs[identity.IDNamespace], Prefixes: prefixes}}
}
