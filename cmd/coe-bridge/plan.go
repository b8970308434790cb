package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/coe-bridge/coe-bridge/cmd/bridge"
	"github.com/coe-bridge/coe-bridge/restconf/document"
)

func newPlan() *cobra.Command {
	var (
		files    []string
		out      output
		side     only
		pools    poolFlags
		settings settingsFlags
		nodes    nodeFlags
		cfg      bridge.PlanConfig
	)
	cmd := &cobra.Command{
		Use:   "plan -f FILE",
		Short: "Show what Kubernetes manifests, or pods as apply takes them, would become, and touch nothing",
		Long: `plan reads Kubernetes manifests (YAML or JSON, several documents, lists), or pods,
services, nodes and DHCP pools as apply takes them (YAML or JSON), or files of both. It
maps them as a bridge with nothing else in it would, and prints the Netvirt objects in
the order in which they would be made, the rows that OVN's northbound database would
get, and what can't be mapped. It asks no bridge, no cluster and no backend.

Of manifests it takes Pod, Service, EndpointSlice, Node, Namespace and List; it names
what it skips. A pod or service without a uid gets one that follows from its name. A
service that has a selector and no EndpointSlice leads to the pods that match, as if
they were ready. The table leaves rows' external_ids out; JSON and YAML have all.`,
		Example: `  coe-bridge plan -f pod.yaml --pool 10.11.0.0/16
  kubectl get nodes,pods,services,endpointslices -A -o yaml | coe-bridge plan -f - --only ovn
  coe-bridge plan -f pools.json -f pods.json -o yaml
  coe-bridge plan -f web.yaml # as get pods shop/web --documents wrote it
  echo '{"pod:pods":[{"uid":"8f2a6d5e-0000-4000-8000-000000000001","name":"web"}]}' | coe-bridge plan -f - # it names no node`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			documents, err := readDocuments(cmd.InOrStdin(), files)
			if err != nil {
				return err
			}
			if cfg.Mapping, err = settings.settings(); err != nil {
				return err
			}
			if cfg.Pools, err = pools.pools(); err != nil {
				return err
			}
			if cfg.Nodes, err = nodes.config(cfg.Pools); err != nil {
				return err
			}
			planned, err := bridge.Plan(cmd.Context(), documents, cfg)
			if err != nil {
				return err
			}
			return printPlan(cmd.OutOrStdout(), out, side, planned)
		},
	}
	cmd.Flags().StringArrayVarP(&files, "file", "f", nil, "file of Kubernetes manifests, or of what apply takes, - for standard input; may be given again")
	cmd.Flags().Var(&side, "only", "print the changes of one side alone: netvirt or ovn")
	_ = cmd.RegisterFlagCompletionFunc("only", cobra.FixedCompletions(
		[]string{string(onlyNetvirt), string(onlyOVN)}, cobra.ShellCompDirectiveNoFileComp))
	pools.register(cmd)
	cmd.Flags().BoolVar(&cfg.NodePools, "node-pod-cidrs", false, "make every node's pod-cidrs pools for the pods on it")
	settings.register(cmd)
	nodes.register(cmd)
	out.register(cmd)
	return cmd
}

func readDocuments(stdin io.Reader, files []string) ([]bridge.Document, error) {
	if len(files) == 0 {
		return nil, errors.New("nothing to plan: name a file with -f, or - for standard input")
	}
	known, err := loadCatalog()
	if err != nil {
		return nil, err
	}
	reader := known.reader()
	var documents []bridge.Document
	for _, name := range files {
		d := bridge.Document{Name: name}
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

// asJSON makes of a file of YAML as apply takes it a document of each entry, named by its
// line. Another document stays as it is.
func asJSON(reader *document.Reader, d bridge.Document) ([]bridge.Document, error) {
	if !isDataInYAML(d.Text) {
		return []bridge.Document{d}, nil
	}
	read, err := reader.Read(document.File{Name: d.Name, Text: d.Text})
	if err != nil {
		return nil, err
	}
	var (
		documents []bridge.Document
		wrong     []error
	)
	for _, e := range read {
		wrong = append(wrong, e.Problems...)
		documents = append(documents, bridge.Document{Name: fmt.Sprintf("%s:%d", e.File, e.Line), Text: e.Body()})
	}
	return documents, errors.Join(wrong...)
}

// isDataInYAML tells apart from JSON and from manifests what begins with data in YAML.
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
		if len(first) > 0 { // else it says nothing
			return first["kind"] == nil && first["apiVersion"] == nil
		}
	}
}
