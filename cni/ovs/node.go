package ovs

import (
	"context"
	"errors"
	"fmt"
)

// NodePort is the port that the node itself is plugged in with.
type NodePort struct {
	Name      string // of the port and its link
	Interface string // of the network: its iface-id
	MAC       string
}

// keyNode tells a node's own port from those of pods.
const keyNode = "coe-node"

// PutNode sees to it that the switch has the node's own port, as it has to be. It
// tells whether it had to change anything.
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
		return false, fmt.Errorf("add port %s: the switch has one of that name, which was made by somebody else; remove or rename it", p.Name)
	case row.ExternalIDs[keyInterface] == p.Interface && row.ExternalIDs[keyMAC] == p.MAC:
		return false, nil
	default:
		if err := s.DeleteNode(ctx, p.Name); err != nil {
			return false, err
		}
	}
	if err := s.settle(ctx, p.Name); err != nil {
		return false, err
	}
	return true, s.add(ctx, one, p.Name, map[string]string{keyInterface: p.Interface, keyMAC: p.MAC, keyNode: "management"})
}

// DeleteNode removes the node's own port, and waits until the switch has let it go.
// One that is not there, or not ours, is well.
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
			err = errors.New("the port is still told of")
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("delete port %s: %w", name, err)
	}
	return s.settle(ctx, name)
}

// Listen returns a channel that receives when the port of a name, or the connection to
// the switch, may be another than before.
func (s *Switch) Listen(name string) (heard <-chan struct{}, stop func()) {
	return s.waiting.listen(name)
}
