package e2e

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
	"github.com/coe-bridge/coe-bridge/test/lab/ovsdb"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// TestOldOVN: a bridge that is started on a database which is too old says in its log and in coe-bridge status what the schema lacks, and writes
// nothing. It works as soon as the database is converted.
func TestOldOVN(t *testing.T) {
	server := ovsdb.Start(t)
	server.Convert(t, ovsdb.ChangedSchema(t, func(tables map[string]any) {
		delete(tables, "Chassis_Template_Var") // came with OVN 22.12
		delete(tables, "Static_MAC_Binding")   // came with OVN 22.06
	}))
	empty := server.Dump(t, "NB_Global")
	p := startProcess(t, server.Endpoint())
	status := func() string {
		command := exec.CommandContext(t.Context(), bridgetest.Program(t), "status", "--server", p.Bridge().URL())
		command.Env = append(command.Environ(), "COE_BRIDGE_PASSWORD="+bridgetest.Password)
		out, err := command.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	const refusal = "the bridge needs OVN 22.12 and Open vSwitch 3.1, or later: " +
		"the schema of the northbound database lacks Chassis_Template_Var, Static_MAC_Binding"
	bridgetest.Await(t, patience.Brief, patience.Patience, "the log and the status name what the schema lacks", func() error {
		if !p.Log().Says(0, refusal) {
			return fmt.Errorf("the log does not: %s", p.Log().Last())
		}
		if shown := status(); !strings.Contains(shown, refusal) {
			return fmt.Errorf("the status does not: %s", shown)
		}
		return nil
	})
	require.Contains(t, status(), "ovn: behind")
	require.Equal(t, empty, server.Dump(t, "NB_Global"))

	server.Convert(t, ovsdb.Schema("ovn/ovn-nb"))
	p.Bridge().AwaitSync(patience.Patience)
	require.NotContains(t, status(), refusal)
	require.Contains(t, server.Dump(t, "NB_Global"), "coe-bridge/session")
}
