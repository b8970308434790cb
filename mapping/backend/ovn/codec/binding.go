package codec

import (
	"net/netip"
	"strings"

	"github.com/google/uuid"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/ovsdb"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// ourVersion is the version of the UUIDs of our rows. The server chooses others.
const ourVersion = 5

// PortOfBinding returns the head of the group of the router port that a row of Static_MAC_Binding names, if the row has a UUID
// like ours. The names of router ports are unique, so the row is ours if the port is.
func PortOfBinding(r ovsdb.Row) (head netvirt.Key, ok bool) {
	row, is := r.Value.(*nb.StaticMACBinding)
	if !is {
		return head, false
	}
	id, err := uuid.Parse(row.UUID)
	port, isRouter := strings.CutPrefix(row.LogicalPort, "router:")
	if err != nil || id.Version() != ourVersion || !isRouter {
		return head, false
	}
	if node, isNode := strings.CutPrefix(port, nodePrefix); isNode {
		node, _, _ = strings.Cut(node, "/")
		return netvirt.Key{Kind: netvirt.KindNode, Name: node}, true
	}
	elan, text, _ := strings.Cut(port, "/")
	prefix, err := netip.ParsePrefix(text)
	return subnetKey(elan, prefix), err == nil
}
