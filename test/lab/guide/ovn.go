package guide

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// EncryptOVN configures TLS for the databases and hosts of a lab as the guide says. certificates is the
// directory of deploy/ovn-certificates, which was run with the names of all hosts.
func EncryptOVN(ctx context.Context, lab *ovnhost.Lab, certificates string) error {
	err := onMachine(ctx, "databases", filepath.Join(certificates, "databases"), "OVN_NB_DB="+lab.NB.Remote, "OVN_SB_DB="+lab.SB.Remote)
	if err != nil {
		return err
	}
	for _, h := range lab.Hosts {
		if err := Chassis(ctx, h, certificates); err != nil {
			return err
		}
	}
	return lab.Sync(ctx)
}

// Chassis configures a host as the guide says. certificates is the directory of deploy/ovn-certificates.
func Chassis(ctx context.Context, h *ovnhost.Host, certificates string) error {
	err := onMachine(ctx, "chassis", filepath.Join(certificates, "nodes", h.Name),
		"OVS_RUNDIR="+h.Dir, "NODE="+h.Name, "ADDRESS="+h.Address.String(), "OVN="+ovnhost.Central.String())
	if err != nil {
		return fmt.Errorf("host %s: %w", h.Name, err)
	}
	return nil
}

// onMachine runs the commands of a kind, with another directory as /etc/ovn.
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
