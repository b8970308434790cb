package connectivity

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe/kube/connectivity"
)

// report has a passed, a failed and a skipped kind of check.
func report() *connectivity.Report {
	path := connectivity.Check{
		Kind: connectivity.SameNode, Family: "IPv4", Protocol: connectivity.TCP, From: "client-1", FromNode: "n1", To: "server-1", ToNode: "n1", Target: "10.0.0.3:8080",
	}
	far := path
	far.Kind, far.To, far.ToNode, far.Target = connectivity.OtherNode, "server-2", "n2", "10.0.1.3:8080"
	farther := far
	farther.To, farther.ToNode, farther.Target = "server-3", "n3", "10.0.2.3:8080"
	outside := connectivity.Check{Kind: connectivity.Outside, Skip: "no address is given"}
	skipped, _ := outside.Known()
	probed := func(c connectivity.Check, cause connectivity.Cause) connectivity.Result {
		trial := connectivity.Trial{Check: c}
		r, _ := trial.Add(connectivity.Outcome{Cause: cause}, true)
		return r
	}
	return connectivity.NewReport("test-1", connectivity.Facts{Nodes: []connectivity.Node{{Name: "n1"}, {Name: "n2"}}, AllNodes: 5}, []connectivity.Result{
		skipped, probed(far, connectivity.NoAnswer), probed(farther, ""), probed(path, ""),
	})
}

func TestShow(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, show(&out, "table", report()))
	require.Equal(t, `tested nodes: n1, n2 (2 of 5)
CHECK        WHAT                                       RESULT
same-node    pod to pod on its node                     1 passed
other-node   pod to pod on another node                 1 failed, 1 passed
outside      pod to an address outside of the cluster   1 skipped: no address is given

failed (repair them in this order, because later checks need what earlier ones check):
CHECK        WAY                                                    REASON
other-node   client-1 on n1 -> server-2 on n2 (TCP 10.0.1.3:8080)   no answer
                                                                    => let nodes n1 and n2 exchange the packets of tunnels (Geneve: UDP port 6081, VXLAN: UDP port 4789), and run coe-bridge doctor on both
`, out.String())
}

func TestShowJSON(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, show(&out, "json", report()))
	var read connectivity.Report
	require.NoError(t, json.Unmarshal(out.Bytes(), &read))
	require.Equal(t, 2, read.Passed)
	require.Equal(t, 1, read.Failed)
	require.Equal(t, 1, read.Skipped)
	require.Equal(t, "no answer", read.ByKind(connectivity.OtherNode)[0].Reason)
	require.Equal(t, "10.0.1.3:8080", read.ByKind(connectivity.OtherNode)[0].Target)
}

// A terminal gets progress, a file gets none.
func TestProgress(t *testing.T) {
	for isTerminal, want := range map[bool]string{true: "creating\n", false: ""} {
		var cmd cobra.Command
		var out bytes.Buffer
		cmd.SetErr(&out)
		progress(&cmd, isTerminal)("creating")
		require.Equal(t, want, out.String())
	}
}
