package codec

import (
	"maps"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/ovsdb"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// Renewed returns the row that takes the place of a row of an earlier release. Both hold the same object. It is not ok for any other row:
//
//   - Until decision 97 the port of a pod whose address is outside its subnet had no option that OVN answers no ARP requests for it.
//   - Until decision 94 the port of a pod, and in LayoutNode the rows of an elan-instance and a subnet, had all pairs in external_ids.
//   - Until decision 90 an elan-instance and a vpn-instance of LayoutNode were a Port_Group.
func (c Codec) Renewed(head netvirt.Key, r ovsdb.Row) (now ovsdb.Row, ok bool) {
	switch row := r.Value.(type) {
	case *nb.LogicalSwitchPort:
		if head.Kind == netvirt.KindInterface {
			short, ok := renewedPort(head, row)
			return ovsdb.Row{Table: r.Table, Value: short}, ok
		}
	case *nb.DHCPOptions:
		short := *row
		short.ExternalIDs, ok = abridged(row.ExternalIDs, impliedByHead(head))
		return ovsdb.Row{Table: r.Table, Value: &short}, ok
	case *nb.PortGroup:
		if c.Layout == LayoutNode && (head.Kind == netvirt.KindELANInstance || head.Kind == netvirt.KindVPNInstance) {
			return ovsdb.Row{Table: Northbound.Table(nb.DHCPOptionsTable), Value: byNode{c}.holding(head, maps.Clone(row.ExternalIDs))}, true
		}
	}
	return ovsdb.Row{}, false
}

// renewedPort returns the port of a pod in the form of this release. ok reports whether the row had another one.
func renewedPort(head netvirt.Key, row *nb.LogicalSwitchPort) (now *nb.LogicalSwitchPort, ok bool) {
	_, hasOption := row.Options[optionUnasked]
	hasOption = hasOption || !unasked(adjacenciesIn(row.ExternalIDs))
	hasPairs := row.ExternalIDs[idPod] != "" // a quick test
	if hasOption && !hasPairs {
		return nil, false
	}
	short := *row
	if hasPairs {
		short.ExternalIDs, ok = abridged(row.ExternalIDs, impliedByPort(head, row))
	}
	if !hasOption {
		short.Options, ok = maps.Clone(row.Options), true
		short.Options[optionUnasked] = "true"
	}
	return &short, ok
}

// abridged returns ids without the pairs that are implied; ok reports whether it had some.
func abridged(ids, implied map[string]string) (short map[string]string, ok bool) {
	short = maps.Clone(ids)
	maps.DeleteFunc(short, isIn(implied))
	return short, len(short) < len(ids)
}
