package odl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/controller"
)

// Netvirt leads packets for an address to a port by a group on the port's switch, and counts the routes that use the group. In a cluster
// Oxygen counts some routes twice when a member fails. Then the group stays after its pod, and Netvirt takes it as it is for the next pod
// with the address: packets go to a port that is gone. So the backend looks at the group of each new port, and corrects it in the config
// datastore (decision 105). Later releases do not count.

// nextHop is an entry of vpnNexthop in l3nexthop:l3nexthop (operational).
type nextHop struct {
	Prefix string  `json:"IpAddress"`
	Group  uint64  `json:"egressPointer"`
	Uses   *uint64 `json:"flowrefCount"` // nil in releases that do not count
}

// vpnNextHops is an entry of the list around it.
type vpnNextHops struct {
	VPN  uint64    `json:"vpnId"`
	Hops []nextHop `json:"vpnNexthop"`
}

// group is an entry of flow-node-inventory:group (config), as far as it tells where packets go.
type group struct {
	Buckets struct {
		Bucket []struct {
			Actions []struct {
				Set struct {
					Match struct {
						Destination struct {
							MAC string `json:"address"`
						} `json:"ethernet-destination"`
					} `json:"ethernet-match"`
				} `json:"set-field"`
				Load *struct {
					Value uint64 `json:"value"`
				} `json:"openflowplugin-extension-nicira-action:nx-reg-load"`
			} `json:"action"`
		} `json:"bucket"`
	} `json:"buckets"`
}

// tagShift is the place of an interface's tag in the register that table 220 matches.
const tagShift = 8

// leads reports whether the group gives packets a MAC address and leads them to the port with a tag.
func (g *group) leads(tag uint64, mac string) bool {
	var to, gives bool
	for _, b := range g.Buckets.Bucket {
		for _, a := range b.Actions {
			to = to || a.Load != nil && a.Load.Value == tag<<tagShift
			gives = gives || strings.EqualFold(a.Set.Match.Destination.MAC, mac)
		}
	}
	return to && gives
}

// correctGroups looks at the groups of the ports that are new or have changed in a view, and corrects those that lead elsewhere. It sets
// astray of a port whose group is not corrected.
func (b *Backend) correctGroups(ctx context.Context, s *session, before, now *view) error {
	var all []destination
	for name, p := range now.ports {
		if p.status != "up" || p.node == "" || p == before.ports[name] {
			continue
		}
		for line := range strings.Lines(p.addresses) {
			address, mac, _ := strings.Cut(strings.TrimSpace(line), " ")
			all = append(all, destination{link: p.link, name: name, address: address, mac: mac, hops: s.nextHops(now.vpns[p.vpn])})
		}
	}
	if len(all) > fewEntries {
		var err error
		if all, err = s.usedTwice(ctx, all); err != nil {
			return err
		}
	}
	var mu sync.Mutex
	return together(ctx, s.parallel(), len(all), func(ctx context.Context, i int) error {
		err := b.correctGroup(ctx, s, all[i])
		if err == nil || ctx.Err() != nil {
			return ctx.Err()
		}
		mu.Lock()
		defer mu.Unlock()
		now.change(all[i].name, func(p *port) { p.astray = err.Error() })
		return nil
	})
}

// destination is an address of an interface.
type destination struct {
	link
	name         string // of the interface
	address, mac string
	hops         stateList // that has the next hop of the address
}

// nextHops returns the list of the next hops of the vpn-instance with a vpn-id.
func (s *session) nextHops(vpn uint64) stateList {
	path := s.dialect.Nested("", "l3nexthop", "vpnNexthops", strconv.FormatUint(vpn, 10))
	return stateList{"l3nexthop", path[1:], "vpnNexthop"}
}

// usedTwice returns the destinations whose groups are counted more than once, by reading all next hops. A port that Netvirt has just given a
// group of a former port can be missed; it is looked at when it is added again.
func (s *session) usedTwice(ctx context.Context, all []destination) ([]destination, error) {
	type place struct {
		hops   stateList
		prefix string
	}
	twice := map[place]bool{}
	_, err := readState(ctx, s, stateList{"l3nexthop", "l3nexthop", "vpnNexthops"}, func(e vpnNextHops) {
		for _, h := range e.Hops {
			twice[place{s.nextHops(e.VPN), h.Prefix}] = h.Uses != nil && *h.Uses > 1
		}
	})
	return slices.DeleteFunc(all, func(to destination) bool { return !twice[place{to.hops, to.prefix()}] }), unlessRefused(err)
}

// correctGroup corrects the group that leads packets to an address, if it leads elsewhere. The error says why it still does.
func (b *Backend) correctGroup(ctx context.Context, s *session, to destination) error {
	var h nextHop
	if _, err := readState(ctx, s, to.hops, func(e nextHop) { h = e }, to.prefix()); unlessRefused(err) != nil {
		return err
	}
	if h.Uses == nil {
		return nil // there is no group yet, or the release does not count
	}
	path := s.dialect.Nested(s.dialect.Data, "opendaylight-inventory:nodes", "node", to.node, "flow-node-inventory:group", strconv.FormatUint(h.Group, 10))
	g, err := s.group(ctx, path)
	if err != nil || g.leads(to.tag, to.mac) {
		return err
	}
	if err := s.Send(ctx, s.request(http.MethodPut, path, to.groupBody(h.Group)), nil); err != nil {
		return fmt.Errorf("group %d leads packets for %s to a former port, and cannot be corrected: %w", h.Group, to.address, err)
	}
	b.log.Info("corrected a group of OpenDaylight that led packets for a pod to a former port", "interface", to.name, "address", to.address, "switch", to.node, "group", h.Group)
	return nil
}

// group reads a group; the zero value if it does not exist.
func (s *session) group(ctx context.Context, path string) (g group, err error) {
	err = s.Send(ctx, s.request(http.MethodGet, path, nil), func(body io.Reader) error {
		return decodeState(body, stateList{"flow-node-inventory", "", "group"}, false, func(e group) { g = e })
	})
	var answer *controller.AnswerError
	if errors.As(err, &answer) && s.dialect.Missing(answer) {
		return g, nil
	}
	return g, err
}

// prefix returns the prefix with the address alone, by which Netvirt knows its next hop.
func (to *destination) prefix() string {
	if strings.Contains(to.address, ":") {
		return to.address + "/128"
	}
	return to.address + "/32"
}

// groupBody returns the group that leads to the destination, as Netvirt writes it.
func (to *destination) groupBody(id uint64) []byte {
	type object = map[string]any
	address := func(kind, mac string) object {
		return object{"ethernet-match": object{"ethernet-" + kind: object{"address": mac}}}
	}
	actions := []object{
		{"order": 0, "set-field": address("source", to.link.mac)},
		{"order": 1, "set-field": address("destination", to.mac)},
		{"order": 2, "openflowplugin-extension-nicira-action:nx-reg-load": object{
			"value": to.tag << tagShift, "dst": object{"nx-reg": "nicira-match:nxm-nx-reg6", "start": 0, "end": 31},
		}},
		{"order": 3, "openflowplugin-extension-nicira-action:nx-resubmit": object{"table": 220}},
	}
	const anyPort = 1<<32 - 1 // OFPP_ANY, OFPG_ANY
	body, err := json.Marshal(object{"flow-node-inventory:group": []object{{
		"group-id": id, "group-name": to.prefix(), "group-type": "group-all",
		"buckets": object{"bucket": []object{{"bucket-id": 0, "weight": 0, "watch_port": anyPort, "watch_group": anyPort, "action": actions}}},
	}}})
	if err != nil {
		panic(err) // maps of text and numbers
	}
	return body
}
