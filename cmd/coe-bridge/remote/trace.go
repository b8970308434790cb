package remote

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/flags"
	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/output"
	"github.com/coe-bridge/coe-bridge/mapping/status"
	"github.com/coe-bridge/coe-bridge/restconf/client"
)

func newTrace() *cobra.Command {
	var (
		bridge flags.Bridge
		out    output.Format
	)
	cmd := &cobra.Command{
		Use:   "trace NAMESPACE/POD",
		Short: "Show how far a pod has come, and what it lacks",
		Long: `trace follows one pod from its source to the backend. It shows the stages that are done,
and the first one that is missing, with the reason and what to do:

  source      Kubernetes or a RESTCONF client has the pod
  address     every interface has its address
  mapped      the pod is in the Netvirt model
  wanted      the backend rejects nothing of the pod
  written     the backend has the pod
  confirmed   the network has the pod, as far as the backend reports it, and the node's
              agent has been notified

TIME and REVISION belong to the pod itself in source, address and confirmed. In mapped
and wanted they belong to the last mapping of its namespace, in written to the last time
that the backend had the whole namespace.`,
		Example: "  coe-bridge trace shop/web-6d4b\n  coe-bridge trace shop/web-6d4b -o json",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || strings.Count(args[0], "/") != 1 || strings.HasPrefix(args[0], "/") || strings.HasSuffix(args[0], "/") {
				return fmt.Errorf("%s: name one pod as NAMESPACE/POD", strings.Join(append([]string{"trace"}, args...), " "))
			}
			return nil
		},
		ValidArgsFunction: completePod,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := bridge.Client()
			if err != nil {
				return err
			}
			ns, pod, _ := strings.Cut(args[0], "/")
			found, err := findPods(cmd.Context(), c, ns, pod)
			if err != nil {
				return err
			}
			for _, p := range found {
				if err := out.Print(cmd.OutOrStdout(), traceTable(ns, &p), p); err != nil {
					return err
				}
			}
			return nil
		},
	}
	bridge.Register(cmd)
	out.Register(cmd)
	return cmd
}

// findPods returns the pods of a name; several if sources disagree.
func findPods(ctx context.Context, c *client.Client, ns, pod string) ([]status.Pod, error) {
	var all status.Pods
	if err := c.GetAs(ctx, client.Confirmed, "coe-status:pods/namespace/"+url.PathEscape(ns), "namespace", &all.Namespaces); err != nil {
		return nil, err
	}
	var found []status.Pod
	names := 0
	for _, n := range all.Namespaces {
		for _, p := range n.Pods {
			if names++; p.Name == pod || p.UID == pod {
				found = append(found, p)
			}
		}
	}
	switch {
	case len(found) > 0:
		return found, nil
	case names == 0:
		return nil, fmt.Errorf("trace %s/%s: not found; namespace %s has no pods; coe-bridge get pods lists all", ns, pod, ns)
	}
	others := "1 other pod is"
	if names > 1 {
		others = fmt.Sprintf("%d other pods are", names)
	}
	return nil, fmt.Errorf("trace %s/%s: not found; %s in namespace %s; coe-bridge get pods lists them", ns, pod, others, ns)
}

// traceTable is the table of the stages of a pod.
func traceTable(ns string, p *status.Pod) output.Table {
	t := output.Table{
		Title:   output.OneLine(fmt.Sprintf("pod %s/%s (%s)", ns, p.Name, p.UID)),
		Columns: []string{"STAGE", "STATE", "TIME", "REVISION", "DETAIL"},
	}
	if p.EgressIP != "" {
		t.Title += output.OneLine(fmt.Sprintf(", leaves the cluster by EgressIP %s", p.EgressIP))
	}
	for _, s := range p.Stages {
		state := "-"
		switch {
		case s.Done:
			state = "done"
		case s.Name == p.Missing:
			state = "MISSING"
		}
		t.Rows = append(t.Rows, []string{string(s.Name), state, s.Time, s.Revision, s.Detail})
	}
	return t
}
