package main

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
)

func newTrace() *cobra.Command {
	var (
		flags clientFlags
		out   output
	)
	cmd := &cobra.Command{
		Use:   "trace NAMESPACE/POD",
		Short: "Show what each stage on the way to the backend knows of a pod",
		Long: `trace follows one pod from its source to the backend and shows which stages it has
come through, and the first one that is missing, with the reason and what to do:

  source      Kubernetes or a RESTCONF client speaks of it
  address     every interface has its address
  mapped      it is in the Netvirt model
  wanted      nothing of it is rejected by the backend
  written     the backend has it
  confirmed   the network has it, as far as the backend tells, and those who plug pods
              in know

TIME and REVISION are of the pod itself in source, address and confirmed. In mapped and
wanted they are of the last time that its namespace was mapped, in written of the last
time that the backend had the namespace as it was wanted.`,
		Example: "  coe-bridge trace shop/web-6d4b\n  coe-bridge trace shop/web-6d4b -o json",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || strings.Count(args[0], "/") != 1 || strings.HasPrefix(args[0], "/") || strings.HasSuffix(args[0], "/") {
				return fmt.Errorf("%s: name one pod as NAMESPACE/POD", strings.Join(append([]string{"trace"}, args...), " "))
			}
			return nil
		},
		ValidArgsFunction: completePod,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := flags.client()
			if err != nil {
				return err
			}
			ns, pod, _ := strings.Cut(args[0], "/")
			found, err := findPods(cmd.Context(), c, ns, pod)
			if err != nil {
				return err
			}
			for _, p := range found {
				if err := out.print(cmd.OutOrStdout(), p.table(ns), p); err != nil {
					return err
				}
			}
			return nil
		},
	}
	flags.register(cmd)
	out.register(cmd)
	return cmd
}

// findPods are the pods of a name; several where sources disagree.
func findPods(ctx context.Context, c *client, ns, pod string) ([]tracedPod, error) {
	var all tracedPods
	if err := c.getAs(ctx, confirmed, "coe-status:pods/namespace/"+url.PathEscape(ns), "namespace", &all.Namespaces); err != nil {
		return nil, err
	}
	var found []tracedPod
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
		return nil, fmt.Errorf("trace %s/%s: not found; no pod is in namespace %s; coe-bridge get pods lists those there are", ns, pod, ns)
	}
	others := "1 other pod is"
	if names > 1 {
		others = fmt.Sprintf("%d other pods are", names)
	}
	return nil, fmt.Errorf("trace %s/%s: not found; %s in namespace %s; coe-bridge get pods lists them", ns, pod, others, ns)
}

// table is what the stages know of a pod.
func (p tracedPod) table(ns string) table {
	t := table{
		title:   oneLine(fmt.Sprintf("pod %s/%s (%s)", ns, p.Name, p.UID)),
		columns: []string{"STAGE", "STATE", "TIME", "REVISION", "DETAIL"},
	}
	for _, s := range p.Stages {
		state := "-"
		switch {
		case s.Done:
			state = "done"
		case s.Name == p.Missing:
			state = "MISSING"
		}
		t.rows = append(t.rows, []string{s.Name, state, s.Time, s.Revision, s.Detail})
	}
	return t
}
