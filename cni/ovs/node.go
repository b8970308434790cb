package ovs

import (
	"context"
	"errors"
	"fmt"
)

// NodePort is the switch port of the node itself.
type NodePort struct {
	Name      string // of the port and its link
	Interface string // the iface-id
	MAC       string
}

// keyNode marks the node's own port.
const keyNode = "coe-node"

// PutNode makes the switch have the node's own port as described, and reports whether it
// changed anything.
func (s *Switch) PutNode(ctx context.Context, p NodePort) (changed bool, err error) {
	one, err := s.session(ctx)
	if err != nil {
		return false, err
	}
	row, err := one.iface(p.Name)
	switch {
	case err != nil:
		return false, err
	case row == nil:
	case row.ExternalIDs[keyNode] == "":
		return false, fmt.Errorf("add port %s: the switch has a port of that name that was not created by coe-bridge; remove or rename it", p.Name)
	case row.ExternalIDs[keyInterface] == p.Interface && row.ExternalIDs[keyMAC] == p.MAC:
		return false, nil
	default:
		if err := s.DeleteNode(ctx, p.Name); err != nil {
			return false, err
		}
	}
	if err := s.awaitDeleted(ctx, p.Name); err != nil {
		return false, err
	}
	return true, s.add(ctx, one, p.Name, map[string]string{keyInterface: p.Interface, keyMAC: p.MAC, keyNode: "management"})
}

// DeleteNode removes the node's own port, and waits until the switch has released it. A
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
	err = s.await(ctx, name, func(one *session) error {
		row, err := one.iface(name)
		if err == nil && row != nil && row.ExternalIDs[keyNode] != "" {
			err = errors.New("the port is still in the database")
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("delete port %s: %w", name, err)
	}
	return s.awaitDeleted(ctx, name)
}

// Listen returns a channel that receives after changes of a port or of the connection to
// the switch. The caller must call stop.
func (s *Switch) Listen(name string) (changed <-chan struct{}, stop func()) {
	return s.rows.listen(name)
}
