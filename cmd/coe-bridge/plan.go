package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coe-bridge/coe-bridge/cmd/bridge"
	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// shownChange is one change in plan's output.
type shownChange struct {
	Verb  string         `json:"verb"`
	Kind  string         `json:"kind"`
	Name  string         `json:"name"`
	Scope string         `json:"scope"`
	New   netvirt.Object `json:"object,omitempty"`
}

func newPlan() *cobra.Command {
	var (
		files    []string
		out      output
		settings settingsFlags
	)
	cmd := &cobra.Command{
		Use:   "plan -f FILE",
		Short: "Show what COE JSON would become, and touch nothing",
		Long: `plan reads pods, services, nodes and DHCP pools in the JSON that RESTCONF takes, maps
them as a bridge with nothing else in it would, and prints the Netvirt objects in
the order in which they would be made, and what can't be mapped. It asks no bridge
and no backend.`,
		Example: `  coe-bridge plan -f pod.json
  coe-bridge plan -f pools.json -f pods.json -o yaml
  echo '{"pod:pods":[{"uid":"8f2a6d5e-0000-4000-8000-000000000001","name":"web"}]}' | coe-bridge plan -f - # it names no node`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			documents, err := readDocuments(cmd.InOrStdin(), files)
			if err != nil {
				return err
			}
			s, err := settings.settings()
			if err != nil {
				return err
			}
			changes, problems, err := bridge.Plan(cmd.Context(), documents, s)
			if err != nil {
				return err
			}
			return printPlan(cmd.OutOrStdout(), out, changes, problems)
		},
	}
	cmd.Flags().StringArrayVarP(&files, "file", "f", nil, "file of COE JSON, - for standard input; may be given again")
	settings.register(cmd)
	out.register(cmd)
	return cmd
}

func readDocuments(stdin io.Reader, files []string) ([]bridge.Document, error) {
	if len(files) == 0 {
		return nil, errors.New("nothing to plan: name a file with -f, or - for standard input")
	}
	var documents []bridge.Document
	for _, name := range files {
		d := bridge.Document{Name: name}
		var err error
		if name == "-" {
			d.Name = "standard input"
			d.JSON, err = io.ReadAll(stdin)
		} else {
			d.JSON, err = os.ReadFile(name)
		}
		if err != nil {
			return nil, fmt.Errorf("read what to plan: %w", err)
		}
		documents = append(documents, d)
	}
	return documents, nil
}

func printPlan(w io.Writer, out output, changes []netvirt.Change, problems []coe.Problem) error {
	if problems == nil {
		problems = []coe.Problem{}
	}
	shown := []shownChange{}
	t := table{columns: []string{"CHANGE", "KIND", "NAME", "DETAILS"}, empty: "no changes"}
	for _, c := range changes {
		one := shownChange{c.Verb(), c.Key().Kind.String(), c.Key().Name, c.Scope().String(), c.New}
		shown = append(shown, one)
		t.rows = append(t.rows, []string{one.Verb, one.Kind, one.Name, details(c.New)})
	}
	if err := out.print(w, t, map[string]any{"changes": shown, "problems": problems}); err != nil {
		return err
	}
	if out != "table" {
		return nil
	}
	for _, p := range problems {
		if _, err := fmt.Fprintf(w, "problem: %s %s of namespace %s: %s: %s\n",
			p.Kind, cmp.Or(p.Name, p.UID), p.Namespace, p.Reason, p.Message); err != nil {
			return err
		}
	}
	return nil
}

// details are the leaves of an object that its name does not say.
func details(o netvirt.Object) string {
	switch o := o.(type) {
	case netvirt.Node:
		return o.HostName
	case netvirt.ELANInstance:
		return fmt.Sprintf("%s %d", strings.TrimPrefix(string(o.SegmentType), "segment-type-"), o.SegmentationID)
	case netvirt.VPNInstance:
		return strings.TrimSpace("rd " + o.RouteDistinguisher + " " + prefixed("shares ", o.Transit))
	case netvirt.Subnet:
		return fmt.Sprintf("gateway %s, vpn %s", o.Gateway, o.VPN)
	case netvirt.Interface:
		return "port " + o.ParentInterface
	case netvirt.ELANInterface:
		return "elan " + o.ELAN
	case netvirt.MACEntry:
		return o.MAC
	case netvirt.VPNInterface:
		return "vpn " + o.VPN
	case netvirt.Adjacency:
		return fmt.Sprintf("%s, gateway %s", o.MAC, o.Gateway)
	case netvirt.Transit:
		return "joins the vpn-instances that share it"
	case netvirt.Service:
		return o.Name
	case netvirt.ServiceVIP:
		return "to " + cmp.Or(string(o.Endpoints), "no endpoint yet")
	case netvirt.FloatingIP:
		return "from " + o.External.String()
	}
	return ""
}

func prefixed(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}

// settingsFlags are the flags of the mapping.
type settingsFlags struct {
	isolation string
	leaseTime uint32
}

func (f *settingsFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.isolation, "isolation", "none", "none: every pod reaches every pod; namespace: only those of its namespace")
	cmd.Flags().Uint32Var(&f.leaseTime, "dhcp-lease-time", 3600, "seconds for which a pod that asks by DHCP has its address")
	_ = cmd.RegisterFlagCompletionFunc("isolation", cobra.FixedCompletions(
		[]string{"none", "namespace"}, cobra.ShellCompDirectiveNoFileComp))
}

func (f *settingsFlags) settings() (mapping.Settings, error) {
	s := mapping.Settings{Isolation: mapping.Isolation(f.isolation), DHCPLeaseTime: f.leaseTime}
	if s.Isolation != mapping.IsolationNone && s.Isolation != mapping.IsolationNamespace {
		return s, fmt.Errorf("--isolation %q: want none or namespace", f.isolation)
	}
	return s, nil
}
