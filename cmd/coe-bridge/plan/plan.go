// Package plan has the commands that show what would change, and write nothing: plan and
// convert.
package plan

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/entrykind"
	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/flags"
	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/output"
	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/running"
	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping/plan"
	"github.com/coe-bridge/coe-bridge/restconf/document"
)

// New returns the command plan.
func New() *cobra.Command {
	var (
		files    []string
		out      output.Format
		side     only
		pools    flags.Pools
		settings flags.Mapping
		nodes    flags.Nodes
		layout   string
		cluster  running.Cluster
		cfg      plan.Config
	)
	cmd := &cobra.Command{
		Use:   "plan -f FILE",
		Short: "Show what Kubernetes manifests, or files for apply, would become, and write nothing",
		Long: `plan reads Kubernetes manifests (YAML or JSON, several documents, lists), or files for
apply with pods, services, nodes, DHCP pools and gateways. It maps them as an empty bridge
would.
It prints the Netvirt objects in the order in which they would be written, the rows for
OVN's northbound database, and what cannot be mapped. It needs no bridge, no cluster and
no backend.

With a running cluster (--kubeconfig or --cluster), plan prints what kubectl apply of the
manifests would change there: objects, rows, the connections that network policies would
close and open, and an estimate of the flows that all policies cost. The connections and
the rows are those of the backend OVN, which enforces network policies.

plan follows clients outside the cluster to the endpoints of services: which port of which
address they ask, which source address the endpoint sees, and which of these clients its
network policies admit. Give the settings of the bridge, such as --pool and
--external-addresses: pods whose address is in no pool are no endpoints. Gateways of OVN
are read from files alone, as coe-bridge get gateways --documents prints them.

plan counts rows and flows as if the agents of all nodes had reported their chassis. If
some have not, give what was reported: a file with the answer to
GET /rests/data/coe-agent:chassis.

With --ovn-layout and --only layout, plan prints what a change to that layout from the
other one costs OVN: rows, logical flows (an estimate) and blocks of addresses before the
change, right after it, and when all pods have been created again; how many pods fit the
pools; and the problems that the change makes. -f is not needed with a running cluster.

plan reads Pod, Service, EndpointSlice, Node, Namespace, NetworkPolicy and List, and names
the manifests that it skips. A pod or service without a uid gets one made from its name.
A service with a selector and no EndpointSlice leads to the matching pods, as if they were
ready. The table omits the external_ids of rows; JSON and YAML have all columns.

The exit status is 0 if everything can be mapped, and 1 if not, or after an error. A
setting that is accepted and not enforced (NotEnforced) is listed, and does not count.`,
		Example: `  coe-bridge plan -f pod.yaml --pool 10.11.0.0/16
  kubectl get nodes,pods,services,endpointslices -A -o yaml | coe-bridge plan -f - --only ovn
  coe-bridge plan -f policy.yaml --kubeconfig ~/.kube/config --only paths
  coe-bridge plan -f service.yaml --kubeconfig ~/.kube/config --pool 10.11.0.0/16 --only ways
  coe-bridge plan --kubeconfig ~/.kube/config --pool 10.11.0.0/16 --ovn-layout node --only layout
  coe-bridge plan -f pools.json -f pods.json -o yaml
  coe-bridge plan -f web.yaml # the output of get pods shop/web --documents
  echo '{"pod:pods":[{"uid":"8f2a6d5e-0000-4000-8000-000000000001","name":"web"}]}' | coe-bridge plan -f - # it names no node`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg.ChangeLayout = side == onlyLayout
			if cfg.ChangeLayout && !cmd.Flags().Changed("ovn-layout") {
				return errors.New("--only layout: name the layout to change to with --ovn-layout")
			}
			if len(files) == 0 && (!cfg.ChangeLayout || !cluster.IsGiven()) {
				return errors.New("nothing to plan: name a file with -f, or - for standard input")
			}
			documents, err := readDocuments(cmd.InOrStdin(), files)
			if err != nil {
				return err
			}
			if cfg.Mapping, err = settings.Settings(); err != nil {
				return err
			}
			if cfg.Layout, err = flags.Layout(layout, cfg.Mapping.Isolation); err != nil {
				return err
			}
			if cfg.Pools, err = pools.Parse(); err != nil {
				return err
			}
			if cfg.Nodes, err = nodes.Config(cfg.Pools); err != nil {
				return err
			}
			if err := flags.SetPhysical(&cfg.Nodes, cfg.Mapping.Physical, cfg.Pools); err != nil {
				return err
			}
			if cluster.IsGiven() {
				if cfg.Running, err = cluster.Read(cmd.Context(), cmd.InOrStdin()); err != nil {
					return err
				}
			}
			planned, err := plan.Compute(cmd.Context(), documents, cfg)
			if err != nil {
				return err
			}
			if err := printPlan(cmd.OutOrStdout(), out, side, planned); err != nil {
				return err
			}
			warn(cmd.ErrOrStderr(), side, planned)
			return verdict(planned)
		},
	}
	cmd.Flags().StringArrayVarP(&files, "file", "f", nil, "file of Kubernetes manifests, or file for apply; - for standard input; may be repeated")
	cmd.Flags().Var(&side, "only", "print only one side: netvirt, ovn, paths, ways or layout")
	_ = cmd.RegisterFlagCompletionFunc("only", cobra.FixedCompletions(
		[]string{string(onlyNetvirt), string(onlyOVN), string(onlyPaths), string(onlyWays), string(onlyLayout)}, cobra.ShellCompDirectiveNoFileComp))
	cluster.Register(cmd)
	pools.Register(cmd)
	cmd.Flags().BoolVar(&cfg.NodePools, "node-pod-cidrs", false, "use every node's pod-cidrs as pools for the pods on it")
	settings.Register(cmd)
	nodes.Register(cmd)
	flags.RegisterLayout(cmd, &layout)
	out.Register(cmd)
	return cmd
}

// warn warns of pods that the plan leaves out. Connections need no addresses.
func warn(w io.Writer, side only, p *plan.Plan) {
	if p.Unaddressed > 0 && side != onlyPaths {
		fmt.Fprintf(w, "warning: pods of the running cluster that have no address in this plan: %d; services do not lead to them. "+
			"Give the pools of the bridge: --pool, --pod-network or --node-pod-cidrs\n", p.Unaddressed)
	}
}

// verdict is an error if something cannot be mapped.
func verdict(p *plan.Plan) error {
	failed := 0
	for _, problem := range allProblems(p) {
		if problem.Reason != coe.NotEnforced {
			failed++
		}
	}
	if failed > 0 {
		return fmt.Errorf("plan: not everything can be mapped; problems: %d", failed)
	}
	return nil
}

func readDocuments(stdin io.Reader, files []string) ([]plan.Document, error) {
	known, err := entrykind.Load()
	if err != nil {
		return nil, err
	}
	reader := known.Reader()
	var documents []plan.Document
	for _, name := range files {
		d := plan.Document{Name: name}
		var err error
		if name == "-" {
			d.Name = "standard input"
			d.Text, err = io.ReadAll(stdin)
		} else {
			d.Text, err = os.ReadFile(name)
		}
		if err != nil {
			return nil, fmt.Errorf("read what to plan: %w", err)
		}
		read, err := asJSON(reader, d)
		if err != nil {
			return nil, err
		}
		documents = append(documents, read...)
	}
	return documents, nil
}

// asJSON splits a YAML file for apply into a document for each entry, named by its line.
// Any other document stays as it is.
func asJSON(reader *document.Reader, d plan.Document) ([]plan.Document, error) {
	if !isDataInYAML(d.Text) {
		return []plan.Document{d}, nil
	}
	read, err := reader.Read(document.File{Name: d.Name, Text: d.Text})
	if err != nil {
		return nil, err
	}
	var (
		documents []plan.Document
		wrong     []error
	)
	for _, e := range read {
		wrong = append(wrong, e.Problems...)
		documents = append(documents, plan.Document{Name: fmt.Sprintf("%s:%d", e.File, e.Line), Text: e.Body()})
	}
	return documents, errors.Join(wrong...)
}

// isDataInYAML reports whether a text is YAML for apply, not JSON or manifests.
func isDataInYAML(text []byte) bool {
	if bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) {
		return false
	}
	documents := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var first map[string]any
		if err := documents.Decode(&first); err != nil {
			return false
		}
		if len(first) > 0 { // else the document is empty
			return first["kind"] == nil && first["apiVersion"] == nil
		}
	}
}
