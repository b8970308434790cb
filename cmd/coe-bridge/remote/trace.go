package remote

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"slices"
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

and with OVN, by the notifications of its databases:

  translated  ovn-northd has written the port to the southbound database (with --ovn-sb)
  bound       ovn-controller of the node has claimed the port (with --ovn-sb)
  installed   the switch of the node has the flows of the port

Below it shows by which ports of nodes and addresses clients outside the cluster reach the
pod, and which of them.

TIME and REVISION belong to the pod itself in source, address and confirmed. In mapped
and wanted they belong to the last mapping of its namespace, in written to the last time
that the backend had the whole namespace. With OVN, TIME in written is the pod's too.

AFTER is the time from source, where TIME belongs to the pod. All times are by the clock of
the bridge that answers, only address is by that of the leader; clocks of nodes do not
matter. A stage that was lost and reached again, as after a restart of the node, has the
later time. A time from before the bridge was started is not known.`,
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
			all, err := listServices(cmd.Context(), c)
			if err != nil {
				return err
			}
			for _, p := range found {
				if err := printTrace(cmd.OutOrStdout(), out, ns, tracedPod{p, outsideWays(p.Addresses, all)}); err != nil {
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

// tracedPod is a pod in coe-bridge trace.
type tracedPod struct {
	status.Pod
	Outside []outsideWay `json:"outside"`
}

// outsideWay is a port by which clients outside the cluster reach a pod.
type outsideWay struct {
	Service string `json:"service"`
	Policy  string `json:"externalTrafficPolicy"`
	shownExposed
}

// outsideWays are the ports of services of which an address is an endpoint. The ports of a service lead to all its endpoints.
func outsideWays(addresses []netip.Addr, all []shownService) []outsideWay {
	ways := []outsideWay{}
	for _, s := range all {
		for _, e := range s.Exposed {
			if slices.ContainsFunc(s.VIPs, func(v vip) bool { return v.leadsTo(addresses, &e) }) {
				ways = append(ways, outsideWay{s.Namespace + "/" + s.Name, s.Policy, e})
			}
		}
	}
	return ways
}

// leadsTo reports whether a port of a cluster address leads to an address, and is the service port of an exposed port of the
// same family.
func (v *vip) leadsTo(addresses []netip.Addr, e *shownExposed) bool {
	if v.Protocol != e.Protocol || v.Port != e.ServicePort {
		return false
	}
	return slices.ContainsFunc(v.Endpoints, func(at endpoint) bool {
		addr, err := netip.ParseAddr(at.Address)
		return err == nil && slices.Contains(addresses, addr) && (!e.Address.IsValid() || e.Address.Is4() == addr.Is4())
	})
}

func printTrace(w io.Writer, out output.Format, ns string, p tracedPod) error {
	if err := out.Print(w, traceTable(ns, &p.Pod), p); err != nil || out != "table" || len(p.Outside) == 0 {
		return err
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	return outsideTable(p.Outside).Print(w)
}

func outsideTable(ways []outsideWay) output.Table {
	t := output.Table{Title: "clients outside the cluster reach it by", Columns: []string{"SERVICE", "WAY", "ADDRESS", "PORT", "POLICY", "CLIENTS"}}
	for _, way := range ways {
		address, clients := "every node", "all"
		if way.Address.IsValid() {
			address = way.Address.String()
		}
		if way.Restricted {
			clients = strings.Trim(fmt.Sprint(way.Sources), "[]")
		}
		t.Rows = append(t.Rows, []string{way.Service, way.Way, address, fmt.Sprintf("%d/%s", way.Port, way.Protocol), way.Policy, clients})
	}
	return t
}

// traceTable is the table of the stages of a pod.
func traceTable(ns string, p *status.Pod) output.Table {
	t := output.Table{
		Title:   output.OneLine(fmt.Sprintf("pod %s/%s (%s)", ns, p.Name, p.UID)),
		Columns: []string{"STAGE", "STATE", "TIME", "AFTER", "REVISION", "DETAIL"},
	}
	if p.EgressIP != "" {
		t.Title += output.OneLine(fmt.Sprintf(", leaves the cluster by EgressIP %s", p.EgressIP))
	}
	if len(p.Gateways) > 0 {
		t.Title += fmt.Sprintf(", leaves the cluster by the gateway of node %s", strings.Trim(fmt.Sprint(p.Gateways), "[]"))
	}
	for _, s := range p.Stages {
		state := "-"
		switch {
		case s.Done:
			state = "done"
		case s.Name == p.Missing:
			state = "MISSING"
		}
		t.Rows = append(t.Rows, []string{string(s.Name), state, s.Time, seconds(s.After), s.Revision, s.Detail})
	}
	return t
}

// seconds shows a number of milliseconds; empty for nil.
func seconds(ms *int64) string {
	if ms == nil {
		return ""
	}
	return fmt.Sprintf("%.3fs", float64(*ms)/1000)
}
