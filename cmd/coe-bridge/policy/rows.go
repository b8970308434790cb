package policy

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/flags"
	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/output"
	"github.com/coe-bridge/coe-bridge/mapping/plan"
)

// readRows computes the rows of a pod. It reports to stderr why the pod has none.
func readRows(cmd *cobra.Command, c *cluster, isolation flags.Mapping, nodePorts flags.NodePorts, pod string) (*plan.PolicyRows, error) {
	settings, err := isolation.Settings()
	if err != nil {
		return nil, err
	}
	if !settings.Isolated() { // otherwise nodes serve none
		if settings.NodePorts, err = nodePorts.Range(); err != nil {
			return nil, err
		}
		if settings.HostPorts, err = nodePorts.Hosts(); err != nil {
			return nil, err
		}
	}
	namespace, name, _ := strings.Cut(pod, "/")
	rows, problems, err := plan.RowsOfPolicies(cmd.Context(), c.set, settings, namespace, name)
	if err != nil {
		return nil, err
	}
	for _, p := range problems {
		fmt.Fprintf(cmd.ErrOrStderr(), "note: pod %s has no rows: %s: %s\n", pod, p.Reason, output.OneLine(p.Message))
	}
	return rows, nil
}

// rowTable lists the rows of a pod.
func rowTable(rows *plan.PolicyRows) output.Table {
	t := output.Table{Columns: []string{"TABLE", "FOR", "ROW"}, Empty: "no rows in OVN"}
	for _, group := range rows.PortGroups {
		t.Rows = append(t.Rows, []string{"Port_Group", "the pod's port", group.Name})
		for _, acl := range group.ACLs {
			row := fmt.Sprintf("%s %d %s: %s", acl.Direction, acl.Priority, acl.Action, acl.Match)
			t.Rows = append(t.Rows, []string{"  ACL", strings.TrimPrefix(acl.Role, "ace "), row})
		}
	}
	for _, name := range rows.Peers {
		t.Rows = append(t.Rows, []string{"Address_Set", "peers in these ACLs", name})
	}
	for _, name := range rows.Memberships {
		t.Rows = append(t.Rows, []string{"Address_Set", "the pod's addresses", name})
	}
	return t
}
