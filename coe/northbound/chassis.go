package northbound

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/state"
)

// ChassisOf reads an entry of coe-agent:chassis/node.
func ChassisOf(raw []byte) (*coe.Chassis, error) {
	var in struct {
		Address addr   `json:"address"`
		Name    string `json:"system-id"`
	}
	if err := json.Unmarshal(raw, &in); err != nil {
		return nil, fmt.Errorf("read chassis: %w", err)
	}
	if !in.Address.IsValid() || in.Name == "" {
		return nil, errors.New("address and system-id must be set")
	}
	return &coe.Chassis{Node: in.Address.Addr, Name: in.Name}, nil
}

func deleteChassis(tx *state.Tx, key string) {
	if node, err := netip.ParseAddr(key); err == nil {
		tx.DeleteChassis(node)
	}
}
