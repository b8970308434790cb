package ovs

import "context"

// Tunnels are those to other nodes, as the switch's database says. Of both there may be
// several, with commas.
type Tunnels struct{ Kinds, From string }

// netvirtTunnels are those of the transport zone that OpenDaylight has without being told.
const netvirtTunnels = "vxlan"

// Tunnels are how the node's packets go to other nodes. What is not set is empty.
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
	return Tunnels{netvirtTunnels, row.OtherConfig[keyLocalIP]}, nil
}
