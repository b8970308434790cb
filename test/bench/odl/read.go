package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/coe-bridge/coe-bridge/test/lab/odl/wire"
)

// The entries of the lists as a bare client decodes them: the leaves that the backend reads.
type (
	bareELANInstance struct {
		Name           string `json:"elan-instance-name"`
		SegmentType    string `json:"segment-type"`
		SegmentationID uint32 `json:"segmentation-id"`
		External       bool   `json:"external"`
		Description    string `json:"description"`
	}
	bareVPNInstance struct {
		Name        string `json:"vpn-instance-name"`
		Type        string `json:"type"`
		L3VNI       uint32 `json:"l3vni"`
		Description string `json:"description"`
		IPv4        struct {
			RouteDistinguishers []string `json:"route-distinguisher"`
			Targets             struct {
				Target []struct {
					Value string `json:"vrfRTValue"`
					Type  string `json:"vrfRTType"`
				} `json:"vpnTarget"`
			} `json:"vpnTargets"`
		} `json:"ipv4-family"`
	}
	bareInterface struct {
		Name        string   `json:"name"`
		Type        string   `json:"type"`
		Enabled     bool     `json:"enabled"`
		L2VLANMode  string   `json:"odl-interface:l2vlan-mode"`
		Parent      string   `json:"odl-interface:parent-interface"`
		Description string   `json:"description"`
		Secured     bool     `json:"aclservice:port-security-enabled"`
		Groups      []string `json:"aclservice:security-groups"`
		Pairs       []struct {
			MAC     string `json:"mac-address"`
			Address string `json:"ip-address"`
		} `json:"aclservice:allowed-address-pairs"`
	}
	bareELANInterface struct {
		Name       string `json:"name"`
		ELAN       string `json:"elan-instance-name"`
		MACEntries []struct {
			MAC     string `json:"mac-address"`
			Address string `json:"ip-prefix"`
		} `json:"static-mac-entries"`
		Description string `json:"description"`
	}
	bareVPNInterface struct {
		Name   string `json:"name"`
		Router bool   `json:"router-interface"`
		VPNs   []struct {
			Name       string `json:"vpn-name"`
			SubnetType string `json:"associated-subnet-type"`
		} `json:"vpn-instance-names"`
		Adjacencies []struct {
			Address  string `json:"ip_address"`
			MAC      string `json:"mac_address"`
			Type     string `json:"adjacency_type"`
			SubnetID string `json:"subnet_id"`
			Gateway  string `json:"subnet_gateway_ip"`
		} `json:"odl-l3vpn:adjacency"`
	}
)

// bareReads has the containers, each with the function by which a bare client decodes it.
var bareReads = map[string]func(answer []byte) (entries int, err error){
	"elan:elan-instances":        decodeBare[bareELANInstance],
	"l3vpn:vpn-instances":        decodeBare[bareVPNInstance],
	"ietf-interfaces:interfaces": decodeBare[bareInterface],
	"elan:elan-interfaces":       decodeBare[bareELANInterface],
	"l3vpn:vpn-interfaces":       decodeBare[bareVPNInterface],
}

// decodeBare decodes a container with one list of entries E, and returns their number.
func decodeBare[E any](answer []byte) (entries int, err error) {
	var containers map[string]map[string][]E
	err = json.Unmarshal(answer, &containers)
	for _, container := range containers {
		for _, list := range container {
			entries += len(list)
		}
	}
	return entries, err
}

// readBare gets all containers at the same time, and decodes them. It returns the number of
// entries.
func (c *controller) readBare(ctx context.Context) (int, error) {
	var (
		group   sync.WaitGroup
		entries atomic.Int64
		fault   atomic.Pointer[error]
	)
	for name, decode := range bareReads {
		group.Go(func() {
			answer, err := c.send(ctx, c.URL, wire.Request{Method: http.MethodGet, Path: config + name})
			if err == nil {
				var n int
				n, err = decode(answer)
				entries.Add(int64(n))
			}
			if err != nil {
				fault.Store(&err)
			}
		})
	}
	group.Wait()
	if err := fault.Load(); err != nil {
		return 0, fmt.Errorf("read as a bare client: %w", *err)
	}
	return int(entries.Load()), nil
}
