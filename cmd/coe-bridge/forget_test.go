package main

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// TestReportsOfDeletedNodes: what the agent of a node has reported goes when the node is deleted, also after a restart between the
// two. The reports of other nodes stay.
func TestReportsOfDeletedNodes(t *testing.T) {
	b := bridgeFor(t)
	const nodes, reports = "/restconf/config/k8s-node:k8s-nodes-info", "/rests/data/coe-agent:chassis"
	var entries []string
	for i := range 3 {
		entries = append(entries, fmt.Sprintf(`{"uid": "8f2a6d5e-0000-4000-8000-0000000000f%d", "host-name": "worker-%d", "internal-ip-address": "fd00:33::%d"}`, i, i, i+1))
	}
	post(t, b, nodes, `{"k8s-nodes": [`+strings.Join(entries, ",")+`]}`)
	b.AwaitSync(patience.Patience)
	for i := range 4 {
		address := fmt.Sprintf("fd00:33::%d", i+1) // the last one is of a node that is not known yet
		status, answer := b.Do(http.MethodPut, reports+"/node="+strings.ReplaceAll(address, ":", "%3A"), fmt.Sprintf(`{"coe-agent:node": [{"address": %q, "system-id": "c%d"}]}`, address, i))
		require.Equal(t, http.StatusCreated, status, answer)
	}
	deleteNode := func(i int) {
		status, answer := b.Do(http.MethodDelete, fmt.Sprintf("%s/k8s-nodes/8f2a6d5e-0000-4000-8000-0000000000f%d", nodes, i), "")
		require.Equal(t, 2, status/100, answer)
	}
	left := func(want ...string) {
		t.Helper()
		bridgetest.Await(t, 20*time.Millisecond, patience.Patience, fmt.Sprintf("reports of %v", want), func() error {
			var all struct {
				Nodes []struct {
					Address string `json:"address"`
				} `json:"node"`
			}
			if !b.Get("config/coe-agent:chassis", &all) {
				return errors.New("the report is missing")
			}
			var has []string
			for _, n := range all.Nodes {
				has = append(has, n.Address)
			}
			if fmt.Sprint(has) != fmt.Sprint(want) {
				return fmt.Errorf("there are reports of %v", has)
			}
			return nil
		})
	}
	left("fd00:33::1", "fd00:33::2", "fd00:33::3", "fd00:33::4")
	deleteNode(0)
	left("fd00:33::2", "fd00:33::3", "fd00:33::4")
	deleteNode(1)
	b.Restart()
	left("fd00:33::3", "fd00:33::4")
}
