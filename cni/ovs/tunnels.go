package ovs

import (
	"cmp"
	"context"
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
	row, err := one.root()
	switch {
	case err != nil:
		return Tunnels{}, err
	case s.cfg.Controller == OVN:
		return Tunnels{row.ExternalIDs["ovn-encap-type"], row.ExternalIDs["ovn-encap-ip"]}, nil
	}
	return Tunnels{netvirtTunnels, cmp.Or(row.OtherConfig[keyLocalIP], row.ExternalIDs[keyTunnels])}, nil
}
