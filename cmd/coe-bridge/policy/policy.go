// Package policy has the commands that ask what network policies allow.
package policy

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/output"
	"github.com/coe-bridge/coe-bridge/coe/kube/manifest"
	"github.com/coe-bridge/coe-bridge/mapping/policy"
)

// New returns the command policy.
func New() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Ask what the network policies in manifests allow",
		Long: `policy reads Namespace, Pod, Node and NetworkPolicy manifests and says which connections
Kubernetes' definition of network policies allows. It needs no bridge and no cluster.

THE BRIDGE DOES NOT ENFORCE NETWORK POLICIES YET: in a cluster of coe-bridge a connection
that these commands call denied is possible.

A policy never limits a pod's connections to itself, nor those from and to its own node. A
pod on the host network counts as its node. A finished pod has no connections.`,
		Example: `  kubectl get nodes,ns,pods,netpol -A -o yaml > cluster.yaml
  coe-bridge policy check -f cluster.yaml --from shop/web --to shop/db:5432
  coe-bridge policy explain -f cluster.yaml shop/db
  coe-bridge policy reach -f cluster.yaml --to shop/db`,
		DisableFlagsInUseLine: true,
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

// input has the manifests that a question is about.
type input struct{ files []string }

func (in *input) register(cmd *cobra.Command) {
	cmd.Flags().StringArrayVarP(&in.files, "file", "f", nil, "file of Kubernetes manifests; - for standard input; may be repeated")
	_ = cmd.MarkFlagRequired("file")
}

// read reads the manifests. It reports objects that it skips to stderr, because pods of a
// skipped Deployment are missing from the answer.
func (in *input) read(cmd *cobra.Command) (*policy.Cluster, error) {
	var set manifest.Set
	for _, name := range in.files {
		if err := readFile(&set, cmd.InOrStdin(), name); err != nil {
			return nil, err
		}
	}
	for _, s := range set.Skipped {
		fmt.Fprintf(cmd.ErrOrStderr(), "skipped: %s %s: %s (%s)\n", output.OneLine(s.Kind), output.OneLine(s.Name), output.OneLine(s.Message), output.OneLine(s.Where))
	}
	world, err := set.World()
	if err != nil {
		return nil, err
	}
	return policy.Compile(world), nil
}

func readFile(set *manifest.Set, stdin io.Reader, name string) error {
	if name == "-" {
		return set.Read("standard input", stdin)
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return fmt.Errorf("read manifests: %w", err)
	}
	return set.Read(name, bytes.NewReader(text))
}

// complete completes the names of the pods in the files that the command line names so far.
func (in *input) complete(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	var set manifest.Set
	files := slices.Sorted(slices.Values(in.files))
	for _, name := range slices.Compact(files) { // cobra parses the flags twice
		if name == "-" || readFile(&set, nil, name) != nil { // a shell shows no errors
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
func podEnds(c *policy.Cluster, text string) ([]policy.End, error) {
	namespace, name, ok := strings.Cut(text, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return nil, fmt.Errorf("%q: name a pod as NAMESPACE/POD", text)
	}
	ends, found := c.Pod(namespace, name)
	switch {
	case !found:
		return nil, fmt.Errorf("pod %s is not in the files", text)
	case len(ends) == 0:
		return nil, fmt.Errorf("pod %s has finished: it has no address, and no connections", text)
	}
	return ends, nil
}
