package ovs

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/coe-bridge/coe-bridge/cni/ovs/session"
	"github.com/coe-bridge/coe-bridge/cni/ovs/vif"
	"github.com/coe-bridge/coe-bridge/cni/ovs/vswitch"
)

// Tunnels are the kinds and the local addresses of the node's tunnels. Both may be lists
// with commas; empty if not set.
type Tunnels struct{ Kinds, From string }

// netvirtTunnels is the kind of tunnels in OpenDaylight's default transport zone.
const netvirtTunnels = "vxlan"

// Tunnels returns the settings of the node's tunnels, also those that Manage will set.
func (s *Switch) Tunnels(ctx context.Context) (Tunnels, error) {
	one, err := s.session(ctx)
	if err != nil {
		return Tunnels{}, err
	}
	row, err := one.Root()
	switch {
	case err != nil:
		return Tunnels{}, err
	case s.cfg.Controller == OVN:
		return Tunnels{row.ExternalIDs["ovn-encap-type"], row.ExternalIDs["ovn-encap-ip"]}, nil
	}
	return Tunnels{netvirtTunnels, cmp.Or(row.OtherConfig[keyLocalIP], row.ExternalIDs[keyTunnels])}, nil
}

// tunnelPort is the port of a tunnel.
type tunnelPort struct {
	name string
	ids  map[string]string
}

// tunnelsFrom returns the ports of OpenDaylight's tunnels that start at an address.
func tunnelsFrom(ctx context.Context, one *session.Session, address string) (all []tunnelPort, err error) {
	results, err := one.Transact(ctx, ovsdb.Operation{
		Op: ovsdb.OperationSelect, Table: "Interface", Columns: []string{"name", "options", "external_ids"},
		Where: []ovsdb.Condition{ovsdb.NewCondition("type", ovsdb.ConditionEqual, netvirtTunnels)},
	})
	if err != nil {
		return nil, fmt.Errorf("look for tunnels: %w", err)
	}
	for _, row := range results[0].Rows {
		name, _ := row["name"].(string)
		options, _ := row["options"].(ovsdb.OvsMap)
		ids, _ := row["external_ids"].(ovsdb.OvsMap)
		if address != "" && texts(options)["local_ip"] == address {
			all = append(all, tunnelPort{name, texts(ids)})
		}
	}
	return all, nil
}

// tunnelMark begins the iface-id of the ports of tunnels. No interface of OpenDaylight has such a name.
const tunnelMark = "coe-tunnel:"

// markTunnels returns the operations that give the ports of tunnels an iface-id. An OpenDaylight that comes back without its datastore creates
// the interfaces of the tunnels. It looks for the parent of each one among the ports, and takes the port of the tunnel itself if that has no
// iface-id (decision 108).
func markTunnels(ctx context.Context, one *session.Session, from string) (ops []ovsdb.Operation, err error) {
	ports, err := tunnelsFrom(ctx, one, from)
	for _, p := range ports {
		if p.ids[vif.KeyInterface] == "" {
			ops = append(ops, mutation("Interface", "name", p.name, "external_ids", ovsdb.MutateOperationInsert,
				ovsdb.OvsMap{GoMap: map[any]any{vif.KeyInterface: tunnelMark + p.name}}))
		}
	}
	return ops, err
}

// isAway reports whether neither our managers nor the bridge are connected to OpenDaylight. The switch writes both into its database every few
// seconds.
func (s *Switch) isAway(one *session.Session, rows []*vswitch.Manager, ours []string) bool {
	return s.programmed(one) != nil && !slices.ContainsFunc(rows, func(row *vswitch.Manager) bool {
		return row.IsConnected && slices.Contains(ours, row.Target)
	})
}
