package ovn_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// TestPortJoinsInItsTransaction: the transaction that creates the port of a pod also makes it a
// member of its port groups, so that no packet passes before (decision 43).
// The server's log has a record for each transaction.
func TestPortJoinsInItsTransaction(t *testing.T) {
	lab := ovnhost.ForTest(t)
	b := withLayout(t, lab, ovn.LayoutNode)
	write(t, b, withGateways((&policies{in: netvirt.RemoteGroup{Name: "in"}, out: netvirt.RemoteGroup{Name: "out"}}).model()))

	log, err := os.ReadFile(filepath.Join(lab.Dir, ovnhost.CentralNamespace, "nb.db"))
	require.NoError(t, err)
	created := 0
	for line := range strings.Lines(string(log)) {
		if !strings.HasPrefix(line, "{") {
			continue // the head of a record
		}
		var record struct {
			Ports  map[string]struct{ Name string }           `json:"Logical_Switch_Port"`
			Groups map[string]struct{ Ports json.RawMessage } `json:"Port_Group"`
		}
		require.NoError(t, json.Unmarshal([]byte(line), &record))
		for uuid, port := range record.Ports {
			if !strings.HasPrefix(port.Name, "a:") {
				continue
			}
			created++
			joined := 0
			for _, group := range record.Groups {
				if strings.Contains(string(group.Ports), uuid) {
					joined++
				}
			}
			require.GreaterOrEqual(t, joined, 3, "port groups of %s in the transaction that created it", port.Name)
		}
	}
	require.Equal(t, 7, created, "ports of namespace a")
}
