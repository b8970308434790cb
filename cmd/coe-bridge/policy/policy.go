// Package policy has the commands that ask what network policies allow.
package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/output"
	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/running"
	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/kube/manifest"
	"github.com/coe-bridge/coe-bridge/mapping/policy"
)

// New returns the command policy.
func New() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Ask what the network policies of a cluster, or of manifests, allow",
		Long: `policy reads Namespaces, Pods, Nodes, Services and NetworkPolicies and says which
connections Kubernetes' definition of network policies allows. It reads them from files
(-f), from a running cluster (--kubeconfig), or from both: then it answers as if the files
were applied to the cluster. It needs no bridge. Access lists, which pods name as security
profiles, are read from files as RESTCONF clients write them.

The bridge enforces network policies. On OpenDaylight a new pod can have connections that these
commands call denied, until its rules are in the switch (docs/opendaylight.md).

A policy never limits a pod's connections to itself, nor those from and to its own node. A
pod on the host network counts as its node. A finished pod has no connections.`,
		Example: `  coe-bridge policy explain --kubeconfig ~/.kube/config shop/db
  kubectl get nodes,ns,pods,svc,netpol -A -o yaml > cluster.yaml
  coe-bridge policy check -f cluster.yaml --from shop/web --to shop/db:5432
  coe-bridge policy explain -f cluster.yaml shop/db
  coe-bridge policy reach -f cluster.yaml --to shop/db`,
		DisableFlagsInUseLine: true,
		FParseErrWhitelist:    cobra.FParseErrWhitelist{UnknownFlags: true}, // a misspelt command is the error, not its flags
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return fmt.Errorf("policy %s: unknown; want check, explain or reach (coe-bridge policy --help)", args[0])
		},
	}
	cmd.AddCommand(newCheck(), newExplain(), newReach())
	return cmd
}

// input names the objects that a question is about: of a running cluster, of manifests, or of a
// cluster to which manifests are applied.
type input struct {
	files   []string
	running running.Cluster
}

// cluster answers questions about the objects.
type cluster struct {
	*policy.Cluster
	set        *manifest.Set
	in         string // "the files" or "the cluster", for messages
	namespaces map[string]coe.Labels
}

func (in *input) register(cmd *cobra.Command) {
	cmd.Flags().StringArrayVarP(&in.files, "file", "f", nil, "file of Kubernetes manifests, or of access lists as RESTCONF has them; - for standard input; may be repeated")
	in.running.Register(cmd)
}

// read reads the objects. It reports objects that it skips to stderr, because pods of a skipped
// Deployment are missing from the answer, and policies of files that have no effect.
func (in *input) read(cmd *cobra.Command) (*cluster, error) {
	if len(in.files) == 0 && !in.running.IsGiven() {
		return nil, fmt.Errorf("policy %s: want --kubeconfig FILE, or -f FILE with what kubectl get nodes,ns,pods,svc,netpol -A -o yaml prints", cmd.Name())
	}
	set, where := &manifest.Set{}, "the files"
	for _, name := range in.files {
		if err := running.ReadFile(set, cmd.InOrStdin(), name); err != nil {
			return nil, err
		}
	}
	inFiles := map[string]bool{}
	for _, p := range set.Policies {
		inFiles[p.Namespace+"/"+p.Name] = true
	}
	if in.running.IsGiven() {
		in.running.EgressIPs = true
		base, err := in.running.Read(cmd.Context(), cmd.InOrStdin())
		if err != nil {
			return nil, err
		}
		set, where = base.With(set), "the cluster"
	}
	for _, s := range set.Skipped {
		fmt.Fprintf(cmd.ErrOrStderr(), "skipped: %s %s: %s (%s)\n", output.OneLine(s.Kind), output.OneLine(s.Name), output.OneLine(s.Message), output.OneLine(s.Where))
	}
	world, err := set.World()
	if err != nil {
		return nil, err
	}
	for _, p := range world.Policies {
		if p.Invalid != "" {
			fmt.Fprintf(cmd.ErrOrStderr(), "note: %s allows nothing, because it is invalid: %s\n", output.OneLine(p.Namespace+"/"+p.Name), output.OneLine(p.Invalid))
		}
	}
	if names := unknownProfiles(world); len(names) > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "note: security profiles that are not in %s, so that the pods have no connections: %s: name a file with the access lists with -f\n",
			where, strings.Join(names, ", "))
	}
	if names := idlePolicies(world, inFiles); len(names) > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "note: policies that select no pod in %s: %s\n", where, strings.Join(names, ", "))
	}
	labels := map[string]coe.Labels{}
	for _, n := range world.Namespaces {
		labels[n.Name] = n.Labels
	}
	return &cluster{policy.Compile(world), set, where, labels}, nil
}

// unknownProfiles returns the security profiles that pods or namespaces name and that no access list
// is.
func unknownProfiles(w policy.World) (names []string) {
	known := map[string]bool{}
	for _, p := range w.Policies {
		known[p.Pods.Profile()] = true
	}
	add := func(labels coe.Labels) {
		for name := range labels.Profiles() {
			if !known[name] {
				known[name] = true
				names = append(names, output.OneLine(name))
			}
		}
	}
	for _, n := range w.Namespaces {
		add(n.Labels)
	}
	for _, p := range w.Pods {
		add(p.Labels)
	}
	slices.Sort(names)
	return names
}

// idlePolicies returns the policies of files that select no pod, for example because their
// namespace is misspelt.
func idlePolicies(w policy.World, inFiles map[string]bool) []string {
	var names []string
	for _, p := range w.Policies {
		if inFiles[policyName(p)] && !slices.ContainsFunc(w.Pods, func(pod policy.Pod) bool {
			return pod.Namespace == p.Namespace && !pod.HostNetwork && !pod.Finished && p.Pods.Matches(pod.Labels)
		}) {
			names = append(names, policyName(p))
		}
	}
	return names
}

// noArgs says which flags name pods.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("policy %s: %q: name a pod with --from or --to", cmd.Name(), args[0])
	}
	return nil
}

// complete completes the names of the pods in the files that the command line names so far. It
// does not ask an API server.
func (in *input) complete(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	var set manifest.Set
	files := slices.Sorted(slices.Values(in.files))
	for _, name := range slices.Compact(files) { // cobra parses the flags twice
		if name == "-" || running.ReadFile(&set, nil, name) != nil { // a shell shows no errors
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
	}
	var names []string
	for _, p := range set.Pods {
		names = append(names, p.Namespace+"/"+p.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// podEnds returns the ends of the pod that a text names as NAMESPACE/POD.
func podEnds(c *cluster, text string) ([]policy.End, error) {
	namespace, name, ok := strings.Cut(text, "/")
	if strings.Contains(name, ":") {
		return nil, fmt.Errorf("%q: name a pod as NAMESPACE/POD, without a port", text)
	}
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return nil, fmt.Errorf("%q: name a pod as NAMESPACE/POD", text)
	}
	ends, found := c.Pod(namespace, name)
	switch {
	case !found:
		return nil, c.notFound(namespace, name)
	case len(ends) == 0:
		return nil, fmt.Errorf("pod %s has finished: it has no address, and no connections", text)
	}
	return ends, nil
}

// notFound says why a pod is not found.
func (c *cluster) notFound(namespace, name string) error {
	for _, s := range c.set.Services {
		if s.Namespace == namespace && s.Name == name {
			return fmt.Errorf("%s/%s is a service: name one of its pods", namespace, name)
		}
	}
	var namespaces []string
	for _, p := range c.set.Pods {
		namespaces = append(namespaces, p.Namespace)
	}
	slices.Sort(namespaces)
	namespaces = slices.Compact(namespaces)
	switch {
	case len(namespaces) == 0:
		return fmt.Errorf("pod %s/%s is not in %s: there are no pods", namespace, name, c.in)
	case slices.Contains(namespaces, namespace):
		return fmt.Errorf("pod %s/%s is not in %s", namespace, name, c.in)
	case len(namespaces) > 10:
		namespaces = append(namespaces[:10], "…")
	}
	return fmt.Errorf("pod %s/%s is not in %s: namespace %s has no pods; these have: %s", namespace, name, c.in, namespace, strings.Join(namespaces, ", "))
}
