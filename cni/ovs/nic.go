package ovs

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/coe-bridge/coe-bridge/cni/ovs/session"
	"github.com/coe-bridge/coe-bridge/cni/ovs/vswitch"
)

// Bridge is a bridge of the switch.
type Bridge struct {
	Userspace bool
	NIC       string   // the NIC that AddNICBridge has created the bridge for; empty for other bridges
	Ports     []string // with the port of its own link, sorted
	// Interfaces are the interfaces of the ports, and whether the switch has opened them.
	Interfaces map[string]bool
}

// keyNIC marks the bridge of a NIC, and the interface of the NIC in it, with the name of the NIC.
const keyNIC = "coe-nic"

// userspaceType is the type of a bridge with a userspace datapath.
const userspaceType = "netdev"

// Bridges returns the bridges of the switch by name.
func (s *Switch) Bridges(ctx context.Context) (map[string]Bridge, error) {
	one, err := s.session(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	results, err := one.Transact(ctx,
		ovsdb.Operation{Op: ovsdb.OperationSelect, Table: "Interface", Columns: []string{"_uuid", "name", "ofport"}},
		ovsdb.Operation{Op: ovsdb.OperationSelect, Table: "Port", Columns: []string{"_uuid", "name", "interfaces"}},
		ovsdb.Operation{Op: ovsdb.OperationSelect, Table: "Bridge", Columns: []string{"name", "datapath_type", "external_ids", "ports"}})
	if err != nil {
		return nil, fmt.Errorf("list the bridges of the switch: %w", err)
	}
	interfaces, ports := byUUID(results[0].Rows), byUUID(results[1].Rows)
	bridges := map[string]Bridge{}
	for _, row := range results[2].Rows {
		name, _ := row["name"].(string)
		ids, _ := row["external_ids"].(ovsdb.OvsMap)
		b := Bridge{Userspace: row["datapath_type"] == userspaceType, NIC: texts(ids)[keyNIC], Interfaces: map[string]bool{}}
		for _, port := range references(row["ports"]) {
			portName, _ := ports[port]["name"].(string)
			b.Ports = append(b.Ports, portName)
			for _, uuid := range references(ports[port]["interfaces"]) {
				name, _ := interfaces[uuid]["name"].(string)
				number, _ := interfaces[uuid]["ofport"].(float64)
				b.Interfaces[name] = number > 0
			}
		}
		slices.Sort(b.Ports)
		bridges[name] = b
	}
	return bridges, nil
}

func byUUID(rows []ovsdb.Row) map[string]ovsdb.Row {
	all := map[string]ovsdb.Row{}
	for _, row := range rows {
		if uuid, ok := row["_uuid"].(ovsdb.UUID); ok {
			all[uuid.GoUUID] = row
		}
	}
	return all
}

// references returns the UUIDs in a set column.
func references(column any) (uuids []string) {
	switch column := column.(type) {
	case ovsdb.UUID:
		return []string{column.GoUUID}
	case ovsdb.OvsSet:
		for _, one := range column.GoSet {
			if uuid, ok := one.(ovsdb.UUID); ok {
				uuids = append(uuids, uuid.GoUUID)
			}
		}
	}
	return uuids
}

// UserspaceByDefault reports whether a new bridge should have a userspace datapath: as the bridge that
// gets the ports of pods, or, if there is none, as OVN creates it.
func (s *Switch) UserspaceByDefault(ctx context.Context) (bool, error) {
	one, err := s.session(ctx)
	if err != nil {
		return false, err
	}
	if b, err := one.Bridge(s.cfg.Bridge); err == nil {
		return b.DatapathType == userspaceType, nil
	}
	settings, err := s.Settings(ctx)
	return settings["ovn-bridge-datapath-type"] == userspaceType, err
}

// AddNICBridge creates a bridge for a NIC, without the NIC, and waits until the switch has its link. The
// link has the MAC address of the NIC. The bridge forwards like a learning switch, also without a
// controller.
func (s *Switch) AddNICBridge(ctx context.Context, name, nic, mac string, userspace bool) error {
	kind := "system"
	if userspace {
		kind = userspaceType
	}
	ids := ovsdb.OvsMap{GoMap: map[any]any{keyNIC: nic}}
	err := s.reconfigure(ctx, name, func(top *topRow) []ovsdb.Operation {
		return []ovsdb.Operation{
			{Op: ovsdb.OperationInsert, Table: "Interface", UUIDName: "interface", Row: ovsdb.Row{"name": name, "type": "internal"}},
			{Op: ovsdb.OperationInsert, Table: "Port", UUIDName: "port", Row: ovsdb.Row{"name": name, "interfaces": uuids("interface")}},
			{Op: ovsdb.OperationInsert, Table: "Bridge", UUIDName: "bridge", Row: ovsdb.Row{
				"name": name, "ports": uuids("port"), "datapath_type": kind, "fail_mode": "standalone", "external_ids": ids,
				"other_config": ovsdb.OvsMap{GoMap: map[any]any{"hwaddr": mac}},
			}},
			top.change("bridges", ovsdb.MutateOperationInsert, uuids("bridge")),
		}
	})
	if err != nil {
		return fmt.Errorf("add bridge %s: %w", name, err)
	}
	return nil
}

// AddNIC adds a NIC to its bridge if it is not there, and waits until the switch has opened it.
func (s *Switch) AddNIC(ctx context.Context, bridge, nic string) error {
	bridges, err := s.Bridges(ctx)
	if err != nil {
		return err
	}
	_, there := bridges[bridge].Interfaces[nic]
	err = s.reconfigure(ctx, nic, func(*topRow) []ovsdb.Operation {
		if there {
			return nil
		}
		return []ovsdb.Operation{
			bridgeOf(bridge, nic),
			{
				Op: ovsdb.OperationInsert, Table: "Interface", UUIDName: "interface",
				Row: ovsdb.Row{"name": nic, "external_ids": ovsdb.OvsMap{GoMap: map[any]any{keyNIC: nic}}},
			},
			{Op: ovsdb.OperationInsert, Table: "Port", UUIDName: "port", Row: ovsdb.Row{"name": nic, "interfaces": uuids("interface")}},
			mutation("Bridge", "name", bridge, "ports", ovsdb.MutateOperationInsert, uuids("port")),
		}
	})
	if err != nil {
		return fmt.Errorf("add NIC %s to bridge %s: %w", nic, bridge, err)
	}
	return nil
}

// DeleteNIC removes a NIC from its bridge, and does not wait for the switch, which possibly does not run yet. It is
// not an error if the NIC is not there.
func (s *Switch) DeleteNIC(ctx context.Context, bridge, nic string) error {
	return s.deletePort(ctx, bridge, nic, nic)
}

// deletePort removes a port from the bridge of a NIC, as DeleteNIC does.
func (s *Switch) deletePort(ctx context.Context, bridge, nic, port string) error {
	one, err := s.session(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	named := ovsdb.NewCondition("name", ovsdb.ConditionEqual, port)
	found, err := one.Transact(ctx, ovsdb.Operation{Op: ovsdb.OperationSelect, Table: "Port", Where: []ovsdb.Condition{named}, Columns: []string{"_uuid"}})
	if err == nil && len(found[0].Rows) == 1 {
		uuid, _ := found[0].Rows[0]["_uuid"].(ovsdb.UUID)
		_, err = one.Transact(ctx, bridgeOf(bridge, nic), mutation("Bridge", "name", bridge, "ports", ovsdb.MutateOperationDelete, uuids(uuid.GoUUID)))
	}
	if err != nil {
		return fmt.Errorf("remove port %s from bridge %s: %w", port, bridge, err)
	}
	return nil
}

// bridgeOf makes a transaction fail unless a bridge was created for a NIC.
func bridgeOf(bridge, nic string) ovsdb.Operation {
	at := 0
	return ovsdb.Operation{
		Op: ovsdb.OperationWait, Table: "Bridge", Where: []ovsdb.Condition{
			ovsdb.NewCondition("name", ovsdb.ConditionEqual, bridge),
			ovsdb.NewCondition("external_ids", ovsdb.ConditionIncludes, ovsdb.OvsMap{GoMap: map[any]any{keyNIC: nic}}),
		},
		Columns: []string{"name"}, Until: string(ovsdb.WaitConditionEqual), Rows: []ovsdb.Row{{"name": bridge}}, Timeout: &at,
	}
}

// DeleteNICBridge removes the bridge of a NIC with its ports, and waits until the switch has released
// them.
func (s *Switch) DeleteNICBridge(ctx context.Context, bridge, nic string) error {
	one, err := s.session(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	named := ovsdb.NewCondition("name", ovsdb.ConditionEqual, bridge)
	found, err := one.Transact(ctx, ovsdb.Operation{Op: ovsdb.OperationSelect, Table: "Bridge", Where: []ovsdb.Condition{named}, Columns: []string{"_uuid"}})
	if err == nil && len(found[0].Rows) == 1 {
		uuid, _ := found[0].Rows[0]["_uuid"].(ovsdb.UUID)
		err = s.reconfigure(ctx, "", func(top *topRow) []ovsdb.Operation {
			return []ovsdb.Operation{bridgeOf(bridge, nic), top.change("bridges", ovsdb.MutateOperationDelete, uuids(uuid.GoUUID))}
		})
	}
	if err != nil {
		return fmt.Errorf("delete bridge %s: %w", bridge, err)
	}
	return nil
}

// reconfigure writes to the database, and waits until the switch has applied it and has opened a new
// port; port is empty if there is none.
func (s *Switch) reconfigure(ctx context.Context, port string, operations func(*topRow) []ovsdb.Operation) error {
	one, err := s.session(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	row, err := one.Root()
	if err != nil {
		return err
	}
	top := &topRow{row}
	results, err := one.Transact(ctx, append(operations(top), top.demand()...)...)
	if err != nil {
		return err
	}
	if err := s.awaitConfiguration(ctx, demanded(results)); err != nil || port == "" {
		return err
	}
	return s.await(ctx, port, func(one *session.Session) error {
		row, err := usable(one, port)
		if err == nil && (row.Ofport == nil || *row.Ofport <= 0) {
			err = errors.New("the switch has not opened it")
		}
		return err
	})
}

// ListenNICs returns a channel that receives after changes of NICs in bridges, or of the connection to
// the switch. The caller must call stop.
func (s *Switch) ListenNICs() (changed <-chan struct{}, stop func()) {
	return s.rows.listen(nics)
}

func isNIC(row *vswitch.Interface) bool { return row.ExternalIDs[keyNIC] != "" }
