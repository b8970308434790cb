package ovs

import (
	"context"
	"errors"
	"fmt"

	"github.com/coe-bridge/coe-bridge/cni/ovs/session"
	"github.com/coe-bridge/coe-bridge/cni/ovs/vif"
	"github.com/coe-bridge/coe-bridge/cni/ovs/vswitch"
)

// NodePort is a switch port of the node itself.
type NodePort struct {
	Name      string // of the port and its link
	Interface string // the iface-id
	MAC       string
}

// keyNode marks the node's own ports.
const keyNode = "coe-node"

// NodePorts returns the names of the node's own ports.
func (s *Switch) NodePorts(ctx context.Context) (names []string, err error) {
	one, err := s.session(ctx)
	if err != nil {
		return nil, err
	}
	var rows []*vswitch.Interface
	if err := one.Where(isNode, &rows); err != nil {
		return nil, fmt.Errorf("list the node's own ports: %w", err)
	}
	for _, row := range rows {
		names = append(names, row.Name)
	}
	return names, nil
}

func isNode(row *vswitch.Interface) bool { return row.ExternalIDs[keyNode] != "" }

// ErrWaits is the error of PutNode while a new port waits for OpenDaylight.
var ErrWaits = errors.New("it waits for OpenDaylight")

// PutNode makes the switch have a port of the node itself as described, and reports whether it
// changed anything. With OpenDaylight it adds a port only once KeepManaged has seen that OpenDaylight programs the bridge
// and has stopped to write flows, and fails with ErrWaits until then.
func (s *Switch) PutNode(ctx context.Context, p NodePort) (changed bool, err error) {
	one, err := s.session(ctx)
	if err != nil {
		return false, err
	}
	row, err := one.Interface(p.Name)
	switch {
	case err != nil:
		return false, err
	case row == nil:
	case !isNode(row):
		return false, fmt.Errorf("add port %s: the switch has a port of that name that was not created by coe-bridge; remove or rename it", p.Name)
	case row.ExternalIDs[vif.KeyInterface] == p.Interface && row.ExternalIDs[vif.KeyMAC] == p.MAC:
		return false, nil
	}
	if err := s.AwaitsFlows(); err != nil {
		return false, fmt.Errorf("add port %s: %w: %w", p.Name, ErrWaits, err)
	}
	if row != nil {
		if err := s.DeleteNode(ctx, p.Name); err != nil {
			return false, err
		}
	}
	return true, s.add(ctx, one, p.Name, map[string]string{vif.KeyInterface: p.Interface, vif.KeyMAC: p.MAC, keyNode: "management"})
}

// DeleteNode removes a port of the node itself, and waits until the switch has released it. A
// missing port, or one that is not ours, is not an error.
func (s *Switch) DeleteNode(ctx context.Context, name string) error {
	one, err := s.session(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	if err := s.remove(ctx, one, name, func(ids map[string]string) bool { return ids[keyNode] != "" }); err != nil {
		return fmt.Errorf("delete port %s: %w", name, err)
	}
	err = s.await(ctx, name, func(one *session.Session) error {
		row, err := one.Interface(name)
		if err == nil && row != nil && isNode(row) {
			err = errors.New("the port is still in the database")
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("delete port %s: %w", name, err)
	}
	return s.AwaitDeletions(ctx)
}

// ListenNode returns a channel that receives after changes of the node's own ports, of ports of pods with host
// ports, or of the connection to the switch. The caller must call stop.
func (s *Switch) ListenNode() (changed <-chan struct{}, stop func()) {
	return s.rows.listen(ownPorts)
}
