package guide

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/coe-bridge/coe-bridge/test/ovnhost"
)

// EncryptOVN has the databases of a lab listen as the guide says, and its hosts connect as
// the guide says. The folder certificates is that of deploy/ovn-certificates, which was run
// with the names of all hosts.
func EncryptOVN(ctx context.Context, lab *ovnhost.Lab, certificates string) error {
	err := onMachine(ctx, "databases", filepath.Join(certificates, "databases"), "OVN_NB_DB="+lab.NB.Remote, "OVN_SB_DB="+lab.SB.Remote)
	if err != nil {
		return err
	}
	for _, h := range lab.Hosts {
		err := onMachine(ctx, "chassis", filepath.Join(certificates, "nodes", h.Name),
			"OVS_RUNDIR="+h.Dir, "NODE="+h.Name, "ADDRESS="+h.Address.String(), "OVN="+ovnhost.Central.String())
		if err != nil {
			return fmt.Errorf("host %s: %w", h.Name, err)
		}
	}
	return lab.Sync(ctx)
}

// onMachine runs commands of a kind, whose /etc/ovn is a folder.
func onMachine(ctx context.Context, kind, etc string, env ...string) error {
	code, err := Commands(kind)
	if err != nil {
		return err
	}
	code = strings.ReplaceAll(code, "/etc/ovn/", etc+"/")
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", code)
	cmd.Env = append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("run what docs/kubernetes.md says: %w\n%s\n%s", err, code, out)
	}
	return nil
}
