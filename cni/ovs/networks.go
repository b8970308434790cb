package ovs

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// ListenSettings returns a channel that receives after changes of Settings. The caller must call stop.
func (s *Switch) ListenSettings() (changed <-chan struct{}, stop func()) { return s.rows.listen(root) }

// keyChassis is a key of other_config in the table Open_vSwitch, before the name that ovn-controller has for the node. OVN 23.03 and later
// record it when they start, and delete it when they are stopped in order. The value tells tunnels of several names apart.
const keyChassis = "ovn-chassis-idx-"

// RecordedChassis returns the names that ovn-controller has recorded for the node. There are several if it was killed and started
// with another name. The last one that was new is at the end, unless a name was removed since: ovn-controller takes the first free value.
func (s *Switch) RecordedChassis(ctx context.Context) ([]string, error) {
	one, err := s.session(ctx)
	if err != nil {
		return nil, err
	}
	row, err := one.Root()
	if err != nil {
		return nil, err
	}
	var names []string
	for key := range row.OtherConfig {
		if name, is := strings.CutPrefix(key, keyChassis); is {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		return strings.Compare(row.OtherConfig[keyChassis+a], row.OtherConfig[keyChassis+b])
	})
	return names, nil
}

// keyMappings has the bridges of OVN's networks: network:bridge, comma-separated.
const keyMappings = "ovn-bridge-mappings"

// BridgeOf returns the bridge of a network of OVN; empty if it has none.
func (s *Switch) BridgeOf(ctx context.Context, network string) (string, error) {
	settings, err := s.Settings(ctx)
	if err != nil {
		return "", err
	}
	for mapping := range strings.SplitSeq(settings[keyMappings], ",") {
		if name, bridge, _ := strings.Cut(mapping, ":"); name == network {
			return bridge, nil
		}
	}
	return "", nil
}

// Map gives a network of OVN a bridge, or none if bridge is empty. Other networks keep theirs. Map fails if another
// program changes them at the same time.
func (s *Switch) Map(ctx context.Context, network, bridge string) error {
	var now []string
	if bridge != "" {
		now = []string{network + ":" + bridge}
	}
	if err := s.remap(ctx, func(is string) bool { return is == network }, now); err != nil {
		return fmt.Errorf("set the bridge of OVN's network %s: %w", network, err)
	}
	return nil
}

// remap replaces the mappings of some networks, and keeps the others. It fails if another program changes them at the same
// time.
func (s *Switch) remap(ctx context.Context, replaces func(network string) bool, now []string) error {
	settings, err := s.Settings(ctx)
	if err != nil {
		return err
	}
	if own := keyMappings + "-" + settings["system-id"]; settings[own] != "" && len(now) > 0 {
		return fmt.Errorf("%s has precedence over %s, and is not changed: move its value to %s", own, keyMappings, keyMappings)
	}
	var kept, before []string // before: the mappings that are replaced
	for mapping := range strings.SplitSeq(settings[keyMappings], ",") {
		switch network, _, _ := strings.Cut(mapping, ":"); {
		case mapping == "":
		case replaces(network):
			before = append(before, mapping)
		default:
			kept = append(kept, mapping)
		}
	}
	if slices.Equal(slices.Sorted(slices.Values(before)), slices.Sorted(slices.Values(now))) { // other programs may change their order
		return nil
	}
	kept = append(kept, now...)
	return s.change(ctx, keyMappings, settings[keyMappings], strings.Join(kept, ","))
}

// GatewayNetwork is the network of gateways in OVN, which the OVN backend names too.
const GatewayNetwork = "coe-gateway"

// GatewayConnected reports whether OVN has connected the bridge of GatewayNetwork. ovn-controller does so on the chassis of a
// gateway alone.
func (s *Switch) GatewayConnected(ctx context.Context) (bool, error) {
	bridge, err := s.BridgeOf(ctx, GatewayNetwork)
	if err != nil {
		return false, err
	}
	bridges, err := s.Bridges(ctx)
	return slices.ContainsFunc(bridges[bridge].Ports, func(port string) bool { return strings.HasPrefix(port, patchOfGateway) }), err
}

// keyGatewayNIC names the NIC that has joined its bridge for a gateway alone.
const keyGatewayNIC = "coe-gateway-nic"

// GatewayNIC returns the NIC that serves a gateway alone; empty if there is none.
func (s *Switch) GatewayNIC(ctx context.Context) (string, error) {
	settings, err := s.Settings(ctx)
	return settings[keyGatewayNIC], err
}

// SetGatewayNIC records which NIC serves a gateway alone; empty for none.
func (s *Switch) SetGatewayNIC(ctx context.Context, nic string) error {
	is, err := s.GatewayNIC(ctx)
	if err == nil {
		err = s.change(ctx, keyGatewayNIC, is, nic)
	}
	if err != nil {
		return fmt.Errorf("record the NIC of the gateway: %w", err)
	}
	return nil
}

// change changes a key of external_ids of the table Open_vSwitch; empty for none. It fails if the key has another
// value than before, and then changes nothing.
func (s *Switch) change(ctx context.Context, key, before, now string) error {
	one, err := s.session(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	row, err := one.Root()
	if err != nil || before == now {
		return err
	}
	top, at := &topRow{row}, 0
	pair := func(value string) ovsdb.OvsMap { return ovsdb.OvsMap{GoMap: map[any]any{key: value}} }
	holds := func(value string) ovsdb.Operation { // fails the transaction if the key has another value at that point
		return ovsdb.Operation{
			Op: ovsdb.OperationWait, Table: "Open_vSwitch", Columns: []string{"_uuid"}, Timeout: &at,
			Where: []ovsdb.Condition{ovsdb.NewCondition("external_ids", ovsdb.ConditionIncludes, pair(value))},
			Until: string(ovsdb.WaitConditionEqual), Rows: []ovsdb.Row{{"_uuid": ovsdb.UUID{GoUUID: row.UUID}}},
		}
	}
	var ops []ovsdb.Operation
	if before != "" {
		ops = append(ops, holds(before))
		ops = append(ops, top.set("external_ids", key, now)...)
	} else { // an insert does not change a key that exists: an empty one goes first, and another one fails
		ops = append(ops,
			top.change("external_ids", ovsdb.MutateOperationDelete, pair("")),
			top.change("external_ids", ovsdb.MutateOperationInsert, pair(now)),
			holds(now))
	}
	_, err = one.Transact(ctx, ops...)
	return err
}

// patchOfGateway begins the names of the ports with which ovn-controller connects the bridge of GatewayNetwork.
const patchOfGateway = "patch-gateway:outside:"

// Disconnect removes the ports with which ovn-controller has connected a bridge that GatewayNetwork had. ovn-controller removes them
// itself, but not before it has run for a while. It is an error if the bridge then has other ports than that of its own link and its NIC.
func (s *Switch) Disconnect(ctx context.Context, bridge string) error {
	bridges, err := s.Bridges(ctx)
	if err != nil {
		return err
	}
	b := bridges[bridge]
	for _, port := range b.Ports {
		switch {
		case port == bridge || port == b.NIC:
		case strings.HasPrefix(port, patchOfGateway):
			if err := s.deletePort(ctx, bridge, b.NIC, port); err != nil {
				return err
			}
		default:
			return fmt.Errorf("bridge %s still has port %s: remove the port, or the network of OVN that has the bridge", bridge, port)
		}
	}
	return nil
}
