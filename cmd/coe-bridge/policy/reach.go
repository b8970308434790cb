package policy

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/output"
	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping/policy"
)

func newReach() *cobra.Command {
	var (
		in       input
		out      output.Format
		from, to string
	)
	cmd := &cobra.Command{
		Use:   "reach --from NS/POD | --to NS/POD",
		Short: "List what a pod reaches, or what reaches it, on which ports",
		Long: `reach lists the pods, the nodes and the addresses outside of the cluster that a pod may
connect to (--from), or that may connect to it (--to), with all open ports. Peers without
open ports are left out. A pod on the host network counts as its node.`,
		Example: `  coe-bridge policy reach -f cluster.yaml --to shop/db
  coe-bridge policy reach -f cluster.yaml --from shop/web -o json
  coe-bridge policy reach --kubeconfig ~/.kube/config --to shop/db`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if (from == "") == (to == "") {
				return errors.New("policy reach: want either --from NAMESPACE/POD or --to NAMESPACE/POD")
			}
			c, err := in.read(cmd)
			if err != nil {
				return err
			}
			pod, direction := to, coe.Ingress
			if from != "" {
				pod, direction = from, coe.Egress
			}
			ends, err := podEnds(c, pod)
			if err != nil {
				return fmt.Errorf("policy reach: %w", err)
			}
			shown := showPaths(c, pod, ends, direction)
			return out.Print(cmd.OutOrStdout(), shown.table(), shown)
		},
	}
	cmd.Flags().StringVar(&from, "from", "", "list what this pod reaches, as NAMESPACE/POD")
	cmd.Flags().StringVar(&to, "to", "", "list what reaches this pod, as NAMESPACE/POD")
	_ = cmd.RegisterFlagCompletionFunc("from", in.complete)
	_ = cmd.RegisterFlagCompletionFunc("to", in.complete)
	in.register(cmd)
	out.Register(cmd)
	return cmd
}

// shownReach is the output of reach as JSON and YAML show it.
type shownReach struct {
	Pod       string        `json:"pod"`
	Direction coe.Direction `json:"direction"`
	Paths     []shownPath   `json:"paths"`
}

type shownPath struct {
	Address     string   `json:"address,omitempty"` // of the pod, if it is known
	Kind        string   `json:"kind"`              // of the peer: "pod", "node" or "addresses"
	Peer        string   `json:"peer"`
	PeerAddress string   `json:"peerAddress,omitempty"`
	Ports       []string `json:"ports"` // FIRST[-LAST]/PROTOCOL; all of a protocol are PROTOCOL
	ports       string   // for the table
}

func showPaths(c *cluster, pod string, ends []policy.End, d coe.Direction) shownReach {
	shown := shownReach{Pod: pod, Direction: d, Paths: []shownPath{}}
	for _, end := range ends {
		for _, p := range c.Reach(end, d) {
			if p.Peer.Pod() != nil && p.Peer.Pod() == end.Pod() {
				continue
			}
			one := shownPath{Address: addressOf(end), Kind: "pod", Peer: nameOf(p.Peer), PeerAddress: addressOf(p.Peer), Ports: portTexts(p.Ports), ports: policy.PortsText(p.Ports)}
			switch {
			case p.Block != nil:
				one.Kind, one.Peer, one.PeerAddress = "addresses", p.Block.String(), ""
			case p.Peer.Pod() == nil:
				one.Kind, one.Peer = "node", p.Peer.Node()
			}
			shown.Paths = append(shown.Paths, one)
		}
	}
	return shown
}

// portTexts are ranges of ports as texts.
func portTexts(ranges []policy.PortRange) []string {
	texts := make([]string, len(ranges))
	for i, r := range ranges {
		texts[i] = r.String()
	}
	return texts
}

func (s shownReach) table() output.Table {
	t := output.Table{Columns: []string{"ADDRESS", "PEER", "PEER ADDRESS", "PORTS"}}
	t.Title, t.Empty = "what reaches "+s.Pod+":", "nothing"
	if s.Direction == coe.Egress {
		t.Title = "what " + s.Pod + " reaches:"
	}
	for _, p := range s.Paths {
		peer := p.Peer
		switch p.Kind {
		case "node":
			peer = "node " + peer
		case "addresses":
			peer = "outside " + peer
		}
		t.Rows = append(t.Rows, []string{p.Address, peer, p.PeerAddress, p.ports})
	}
	return t
}
