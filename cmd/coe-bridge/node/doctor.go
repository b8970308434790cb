package node

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/cobra"
	"github.com/vishvananda/netns"

	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/flags"
	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/output"
	"github.com/coe-bridge/coe-bridge/cni/doctor"
	"github.com/coe-bridge/coe-bridge/cni/links"
	"github.com/coe-bridge/coe-bridge/cni/ovs"
	"github.com/coe-bridge/coe-bridge/files"
)

// doctorFlags has the flags of coe-bridge doctor.
type doctorFlags struct {
	onNode
	runDirs               runDirs
	cniBinDir, cniConfDir string
	timeout               time.Duration
	output                output.Format
}

// NewDoctor returns the command doctor.
func NewDoctor() *cobra.Command {
	var f doctorFlags
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check whether this node has what its agent needs, and say what to do",
		Long: `doctor checks Open vSwitch, OVN or OpenDaylight (--backend odl), the datapath, the MTU,
permissions, the clock, the bridge, the agent's credentials, the agent, the CNI plugin and
the network configuration list. It changes nothing. Run it on the node, as root, with the
agent's flags, environment or --config.

The exit status is 1 if a failure prevents pods from being attached.`,
		Example: `  coe-bridge doctor --config /etc/coe-bridge/agent.yaml
  coe-bridge doctor --bridge https://192.168.33.1:8181 --node-address 192.168.33.11 --ca-file ca.pem --cert node.pem --key node-key.pem
  coe-bridge doctor --config /etc/coe-bridge/agent.yaml -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context(), cmd.OutOrStdout()) },
	}
	f.register(cmd)
	return cmd
}

func (f *doctorFlags) register(cmd *cobra.Command) {
	f.onNode.register(cmd)
	set := cmd.Flags()
	f.runDirs.register(set)
	set.StringVar(&f.cniBinDir, "cni-bin-dir", "/opt/cni/bin", binDirUsage)
	set.StringVar(&f.cniConfDir, "cni-conf-dir", "/etc/cni/net.d", confDirUsage)
	set.DurationVar(&f.timeout, "timeout", 5*time.Second, "timeout of each check")
	f.output.RegisterAs(cmd, "table", "json")
}

func (f *doctorFlags) run(ctx context.Context, stdout io.Writer) error {
	if f.timeout <= 0 {
		return fmt.Errorf("--timeout %s: want a time above 0", f.timeout)
	}
	quiet := slog.New(slog.DiscardHandler) // each error is a finding
	follow := flags.ReadOnce()
	up, err := f.uplink("", follow, quiet)
	if err != nil {
		return err
	}
	s, err := f.vswitch(false, quiet)
	if err != nil {
		return err
	}
	physical, err := f.physicalBridges()
	if err != nil {
		return err
	}
	node, err := netns.Get()
	if err != nil {
		return fmt.Errorf("open the node's network namespace: %w", err)
	}
	defer func() { _ = node.Close() }()
	findings := doctor.Examine(ctx, doctor.Config{
		Switch: s, Uplink: up, NICs: f.mover(s, node, quiet), Anonymous: f.user == "" && f.tokenFile == "" && f.tls.Cert.Path == "", Bridges: f.bridges, OVN: f.backend == ovs.OVN, Physical: physical, Node: node, Settings: links.Settings(f.settings),
		Socket: f.socket, StateDir: f.stateDir, OVSRunDir: f.runDirs.ovs, OVNRunDir: f.runDirs.ovn,
		CNIBinDir: f.cniBinDir, CNIConfDir: f.cniConfDir, Timeout: f.timeout,
	})
	findings = append(findings, certificateFindings(follow)...)
	if err := f.output.Print(stdout, findingsTable(findings), findings); err != nil {
		return err
	}
	return verdictOf(findings)
}

// certificateFindings reports certificates of the agent that expire.
func certificateFindings(follow *files.Follower) (all []doctor.Finding) {
	for _, e := range follow.Expiring() {
		finding := doctor.Finding{Check: "certificate", Level: doctor.Warning, Found: e.String(), Mend: "write the new certificate to the file; the agent reads it again"}
		if e.Urgency == files.Expired {
			finding.Level = doctor.Failed
		}
		all = append(all, finding)
	}
	return all
}

func findingsTable(findings []doctor.Finding) output.Table {
	t := output.Table{Columns: []string{"CHECK", "STATE", "FOUND"}}
	for _, f := range findings {
		t.Rows = append(t.Rows, []string{f.Check, string(f.Level), f.Found})
		if f.Mend != "" {
			t.Rows = append(t.Rows, []string{" ", " ", "=> " + f.Mend})
		}
	}
	return t
}

// verdictOf is an error if a check has failed.
func verdictOf(findings []doctor.Finding) error {
	failed := 0
	for _, f := range findings {
		if f.Level == doctor.Failed {
			failed++
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d checks have failed", failed, len(findings))
	}
	return nil
}
