package deploy

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/guide"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// ovnCertificates runs deploy/ovn-certificates in a new folder.
func ovnCertificates(t *testing.T, nodes ...string) (folder, says string, err error) {
	t.Helper()
	script, err := filepath.Abs(root + "/deploy/ovn-certificates")
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), script, nodes...)
	cmd.Dir = t.TempDir()
	out, err := cmd.CombinedOutput()
	return filepath.Join(cmd.Dir, "certificates/ovn"), string(out), err
}

// TestCertificatesOfLongNames: a name that no certificate can have is refused before anything
// is made.
func TestCertificatesOfLongNames(t *testing.T) {
	folder, says, err := ovnCertificates(t, "worker-1", strings.Repeat("n", 65))
	require.Error(t, err)
	require.Contains(t, says, "has 65 characters")
	require.Contains(t, says, "system-id")
	require.NoDirExists(t, folder)
	folder, says, err = ovnCertificates(t, strings.Repeat("n", 64))
	require.NoError(t, err, says)
	require.FileExists(t, filepath.Join(folder, "nodes", strings.Repeat("n", 64), "chassis.crt"))
}

// TestChassisOfANodeWithALongName: OVN with the role ovn-controller serves a node whose name in
// Kubernetes is too long for a certificate. Its chassis has a shorter name, and the whole name as
// its host name.
func TestChassisOfANodeWithALongName(t *testing.T) {
	const chassis = "short"
	long := strings.Repeat("node-name.", 25) + "abc"
	require.Len(t, long, 253)
	lab := ovnhost.ForTest(t, chassis)
	host := lab.Host(chassis)
	folder, says, err := ovnCertificates(t, chassis)
	require.NoError(t, err, says)
	require.NoError(t, guide.EncryptOVN(t.Context(), lab, folder))
	run := func(out string, err error) string {
		t.Helper()
		require.NoError(t, err, out)
		return strings.TrimSpace(out)
	}
	// The role lets a chassis choose its host name when it makes its row, and not later.
	require.NoError(t, host.Controller.Kill())
	run(lab.SBCtl(t.Context(), "chassis-del", chassis))
	run(host.VSCtl(t.Context(), "set", "Open_vSwitch", ".", "external_ids:hostname="+long))
	require.NoError(t, host.Controller.Restart(t.Context()))
	require.Equal(t, long, run(lab.SBCtl(t.Context(), "--bare", "--columns=hostname", "find", "Chassis", "name="+chassis)))

	run(lab.NBCtl(t.Context(), "ls-add", "net", "--", "lsp-add", "net", "port", "--", "lsp-set-addresses", "port", "0a:58:0a:0b:00:02 10.11.0.2",
		"--", "lsp-set-options", "port", "requested-chassis="+long))
	run(host.VSCtl(t.Context(), "add-port", "br-int", "port", "--", "set", "Interface", "port", "type=internal", "external_ids:iface-id=port"))
	run(lab.NBCtl(t.Context(), "--timeout=60", "wait-until", "Logical_Switch_Port", "port", "up=true"))
}
