package odl

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// zone is a transport zone: the hosts between which the controller creates tunnels.
type zone struct {
	Name    string   `json:"zone-name"`
	Type    string   `json:"tunnel-type"`
	Subnets []subnet `json:"subnets"`
}

type subnet struct {
	Prefix  string     `json:"prefix"`
	Gateway string     `json:"gateway-ip"`
	VLAN    int        `json:"vlan-id"`
	Ends    []endpoint `json:"vteps"`
}

type endpoint struct {
	Datapath uint64     `json:"dpn-id"`
	Port     string     `json:"portname"`
	Address  netip.Addr `json:"ip-address"`
}

const zoneName = "hosts"

// JoinHosts makes the controller create tunnels between all hosts of the lab, which it manages, and waits
// until they are up.
func (c *Controller) JoinHosts(ctx context.Context) error {
	if err := c.joinHosts(ctx); err != nil {
		return fmt.Errorf("join hosts by tunnels: %w", err)
	}
	return nil
}

func (c *Controller) joinHosts(ctx context.Context) error {
	ends := make([]endpoint, len(c.Lab.Hosts))
	for i, host := range c.Lab.Hosts {
		datapath, err := datapathID(ctx, host)
		if err != nil {
			return err
		}
		ends[i] = endpoint{Datapath: datapath, Address: host.Address}
	}
	body, err := json.Marshal(map[string][]zone{"transport-zone": {{
		Name: zoneName, Type: "odl-interface:tunnel-type-vxlan",
		Subnets: []subnet{{Prefix: "172.31.99.0/24", Gateway: "0.0.0.0", Ends: ends}},
	}}})
	if err != nil {
		return err
	}
	status, answer, err := c.Request(ctx, http.MethodPut, "/restconf/config/itm:transport-zones/transport-zone/"+zoneName, string(body))
	if err == nil && status >= http.StatusMultipleChoices {
		err = fmt.Errorf("the controller answers %d: %s", status, answer)
	}
	if err != nil {
		return err
	}
	return c.awaitTunnels(ctx)
}

// AwaitTunnels waits until there are tunnels between all hosts of the lab. The controller makes
// them by itself if each switch has its local_ip, because it has a transport zone for such
// switches.
func (c *Controller) AwaitTunnels(ctx context.Context) error {
	if err := c.awaitTunnels(ctx); err != nil {
		return fmt.Errorf("wait for tunnels between hosts: %w", err)
	}
	return nil
}

func (c *Controller) awaitTunnels(ctx context.Context) error {
	return await(ctx, c.tunnelsUp)
}

// datapathID returns the number by which the controller identifies a host's bridge.
func datapathID(ctx context.Context, host *ovnhost.Host) (uint64, error) {
	out, err := host.VSCtl(ctx, "get", "Bridge", Bridge, "datapath_id")
	if err != nil {
		return 0, err
	}
	id, err := strconv.ParseUint(strings.Trim(strings.TrimSpace(out), `"`), 16, 64)
	if err != nil {
		return 0, fmt.Errorf("read the bridge's number: %w", err)
	}
	return id, nil
}

// tunnelsUp returns an error unless all pairs of hosts have a tunnel that is up. Each direction is a tunnel.
func (c *Controller) tunnelsUp(ctx context.Context) error {
	status, answer, err := c.Request(ctx, http.MethodGet, "/restconf/operational/itm-state:tunnels_state", "")
	if err != nil {
		return err
	}
	var tunnels struct {
		State struct {
			List []tunnel `json:"state-tunnel-list"`
		} `json:"tunnels_state"`
	}
	if status == http.StatusOK {
		if err := json.Unmarshal(answer, &tunnels); err != nil {
			return fmt.Errorf("read the controller's tunnels: %w", err)
		}
	}
	if missing := withoutTunnel(c.Lab.Hosts, tunnels.State.List); len(missing) > 0 {
		return fmt.Errorf("no tunnel is up from %s", strings.Join(missing, ", from "))
	}
	return nil
}

// tunnel is an entry of the controller's tunnels.
type tunnel struct {
	State string `json:"oper-state"`
	From  struct {
		Address netip.Addr `json:"tep-ip"`
	} `json:"src-info"`
	To struct {
		Address netip.Addr `json:"tep-ip"`
	} `json:"dst-info"`
}

// withoutTunnel returns the pairs of hosts without a tunnel that is up, with the state of the tunnel if there is one.
func withoutTunnel(hosts []*ovnhost.Host, tunnels []tunnel) (missing []string) {
	states := map[[2]netip.Addr]string{}
	for _, t := range tunnels {
		states[[2]netip.Addr{t.From.Address, t.To.Address}] = t.State
	}
	for _, from := range hosts {
		for _, to := range hosts {
			switch state, is := states[[2]netip.Addr{from.Address, to.Address}]; {
			case from == to || state == "up":
			case is:
				missing = append(missing, fmt.Sprintf("%s to %s: it is %s", from.Name, to.Name, state))
			default:
				missing = append(missing, from.Name+" to "+to.Name)
			}
		}
	}
	return missing
}
