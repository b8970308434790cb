package ovs

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Physical has the bridges of the physical networks that a node is connected to.
type Physical struct {
	Node    netip.Addr
	Bridges map[string]string // by network
}

// NameOf returns the name that OVN has for a physical network at the node, which the OVN backend gives it too.
func (p Physical) NameOf(network string) string {
	return "coe-" + network + "@" + strings.ReplaceAll(p.Node.String(), ":", "-")
}

// isPhysical reports whether a network of OVN is a physical network at this node, also by a former address: another node can have
// that now.
func isPhysical(network string) bool {
	return strings.HasPrefix(network, "coe-") && strings.Contains(network, "@")
}

func (p Physical) mappings() []string {
	var all []string
	for network, bridge := range p.Bridges {
		all = append(all, p.NameOf(network)+":"+bridge)
	}
	slices.Sort(all)
	return all
}

// KeepPhysical writes the bridge mappings of physical networks, and restores them when another program has changed them, until
// ctx is done. It removes the mappings of networks that the node has left. It keeps the mappings of other networks.
func (s *Switch) KeepPhysical(ctx context.Context, p Physical) {
	rows, stop := s.rows.listen(root)
	defer stop()
	var failure transition
	for ctx.Err() == nil {
		err := s.MapPhysical(ctx, p)
		if failure.changed(err) && err != nil && ctx.Err() == nil {
			s.log.Error("could not set the bridges of physical networks", "err", err)
		}
		again := time.NewTimer(manageAgain)
		if err == nil {
			again.Stop()
		}
		select {
		case <-rows:
		case <-again.C:
		case <-ctx.Done():
		}
		again.Stop()
		pause(ctx, manageGather)
	}
}

// MapPhysical gives physical networks their bridges once.
func (s *Switch) MapPhysical(ctx context.Context, p Physical) error {
	if err := s.remap(ctx, isPhysical, p.mappings()); err != nil {
		return fmt.Errorf("set the bridges of physical networks: %w", err)
	}
	return nil
}

// PhysicalConnected reports whether OVN has connected an elan-instance to the bridge of a physical network. ovn-controller does so on the
// node of the elan-instance alone.
func (s *Switch) PhysicalConnected(ctx context.Context, bridge, elan string) (bool, error) {
	bridges, err := s.Bridges(ctx)
	patch := "patch-" + elan + "/localnet-to-"
	return slices.ContainsFunc(bridges[bridge].Ports, func(port string) bool { return strings.HasPrefix(port, patch) }), err
}
