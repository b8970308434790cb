package uplink

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
)

// chassisEntry is an entry of the list node in the container chassis of the YANG module coe-agent.
type chassisEntry struct {
	Address netip.Addr `json:"address"`
	ID      string     `json:"system-id"`
}

// ReportChassis tells the bridge the chassis of the node in OVN, unless the bridge knows it.
func (u *Uplink) ReportChassis(ctx context.Context, id string) error {
	path := "/rests/data/coe-agent:chassis/node=" + u.cfg.Node.String()
	var known struct {
		Entries []chassisEntry `json:"coe-agent:node"`
	}
	if err := u.ask(ctx, http.MethodGet, path, nil, http.StatusNotFound, &known); err != nil {
		return fmt.Errorf("read the chassis of the node: %w", err)
	}
	if len(known.Entries) == 1 && known.Entries[0].ID == id {
		return nil
	}
	body, err := json.Marshal(map[string][]chassisEntry{"coe-agent:node": {{u.cfg.Node, id}}})
	if err == nil {
		err = u.ask(ctx, http.MethodPut, path, body, 0, nil)
	}
	if err != nil {
		return fmt.Errorf("report the chassis of the node: %w", err)
	}
	return nil
}

// Connections returns how often the agent has connected to the bridge, and a channel that is closed at the next change.
func (u *Uplink) Connections() (n int, changed <-chan struct{}) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.connections, u.changed
}
