// Package connectivity has the command that tests the network of a Kubernetes cluster.
package connectivity

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/output"
	"github.com/coe-bridge/coe-bridge/coe/kube/connectivity"
	"github.com/coe-bridge/coe-bridge/coe/kube/connectivity/cluster"
)

// New returns the command connectivity.
func New() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "connectivity",
		Short: "Test the network of a Kubernetes cluster",
		Long: `connectivity test creates pods in a Kubernetes cluster and checks which of them reach each
other. It works with any network plugin, and needs no bridge.`,
		Example: `  coe-bridge connectivity test`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return fmt.Errorf("connectivity %s: unknown; want test (coe-bridge connectivity --help)", args[0])
		},
	}
	cmd.AddCommand(newTest())
	return cmd
}

// Exit statuses of connectivity test. Other programs use 1 and 2 in the same way, for example diff.
const (
	someFailed = 1
	cannotRun  = 2
)

// notRun is the error of a test that could not be run to its end, or whose namespace is left.
func notRun(err error) error {
	return output.Exit{Status: cannotRun, Err: fmt.Errorf("connectivity test: %w", err)}
}

// testFlags has the flags of connectivity test.
type testFlags struct {
	cluster.Config
	kubeconfig, context string
	skip                []string
	timeout             time.Duration
	output              output.Format
}

func newTest() *cobra.Command {
	var f testFlags
	cmd := &cobra.Command{
		Use:   "test",
		Short: "Check every path between pods, services, nodes and the outside",
		Long: `test creates a namespace with a client, a server and a client on the host network on each of
some nodes. It checks each path between pods, services and nodes, by name, out of the
cluster, from this machine to NodePorts, and under network policies, with TCP and UDP, in
each address family that pods have. Then it removes the namespace, also when it is
interrupted.

It works with any network plugin. You need the right to create namespaces, pods, services
and network policies, and to run programs in pods. The pods need one image, which the
nodes pull. They have no rights in the cluster.

The exit status is 0 if no check has failed, 1 if a check has failed, and 2 if the test could
not be run, or not to its end. Then it prints what it has found.

Kinds of checks for --skip:
` + listKinds(),
		Example: `  coe-bridge connectivity test
  coe-bridge connectivity test --kubeconfig admin.conf --outside 192.0.2.1:443
  coe-bridge connectivity test --image registry.example/agnhost:2.63.0 --skip node-port -o json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return notRun(fmt.Errorf("%q: want only flags", args[0]))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			failed, err := f.run(cmd)
			if err != nil {
				return notRun(err)
			}
			if failed {
				return output.Exit{Status: someFailed}
			}
			return nil
		},
	}
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return notRun(cmd.Root().FlagErrorFunc()(cmd, err)) })
	set := cmd.Flags()
	set.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig of the cluster; default: as kubectl finds it")
	set.StringVar(&f.context, "context", "", "context of the kubeconfig; default: the current one")
	set.StringVar(&f.Image, "image", cluster.Image, "image of the pods, with the program /agnhost of Kubernetes")
	set.IntVar(&f.Nodes, "max-nodes", 3, "largest number of nodes; the number of checks grows with its square")
	set.StringVar(&f.Outside, "outside", "", "HOST:PORT outside of the cluster, to which pods connect with TCP")
	set.StringSliceVar(&f.skip, "skip", nil, "kinds of checks that are not run")
	set.BoolVar(&f.Keep, "keep", false, "leave the namespace in the cluster")
	set.DurationVar(&f.StartTimeout, "start-timeout", 2*time.Minute, "time in which the pods must start")
	set.DurationVar(&f.timeout, "timeout", 15*time.Minute, "time in which the test must end")
	f.output.RegisterAs(cmd, "table", "json")
	_ = cmd.MarkFlagFilename("kubeconfig")
	_ = cmd.RegisterFlagCompletionFunc("skip", cobra.FixedCompletions(skippable(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// skippable returns the kinds that --skip accepts.
func skippable() (words []string) {
	for _, k := range connectivity.Kinds() {
		if k != connectivity.PodStart {
			words = append(words, string(k))
		}
	}
	return words
}

func listKinds() string {
	var text strings.Builder
	for _, word := range skippable() {
		fmt.Fprintf(&text, "  %-16s %s\n", word, connectivity.Kind(word).Title())
	}
	return strings.TrimSuffix(text.String(), "\n")
}

// check checks the flags.
func (f *testFlags) check() error {
	for _, word := range f.skip {
		if !slices.Contains(skippable(), word) {
			return fmt.Errorf("--skip %s: want one of %s", word, strings.Join(skippable(), ", "))
		}
		f.Skip = append(f.Skip, connectivity.Kind(word))
	}
	if f.Nodes < 1 {
		return fmt.Errorf("--max-nodes %d: want 1 or more", f.Nodes)
	}
	if f.StartTimeout <= 0 || f.timeout <= 0 {
		return errors.New("--start-timeout, --timeout: want times above 0")
	}
	if f.Outside != "" {
		if host, port, err := net.SplitHostPort(f.Outside); err != nil || host == "" || port == "" {
			return fmt.Errorf("--outside %s: want HOST:PORT, or [ADDRESS]:PORT with IPv6", f.Outside)
		}
	}
	return nil
}

// run runs the test and prints the report. It reports whether a check has failed.
func (f *testFlags) run(cmd *cobra.Command) (failed bool, err error) {
	if err := f.check(); err != nil {
		return false, err
	}
	if f.API, err = cluster.Connect(f.kubeconfig, f.context); err != nil {
		return false, err
	}
	f.Progress = progress(cmd, term.IsTerminal(int(os.Stderr.Fd())))
	f.Interrupted = progress(cmd, true)
	context.AfterFunc(cmd.Context(), func() { signal.Reset(os.Interrupt) }) // a second interrupt ends the program
	ctx, cancel := context.WithTimeoutCause(cmd.Context(), f.timeout, fmt.Errorf("the test has not ended after %s", f.timeout))
	defer cancel()
	report, err := cluster.Run(ctx, f.Config)
	if report == nil {
		return false, err
	}
	return report.Failed > 0, errors.Join(err, show(cmd.OutOrStdout(), f.output, report))
}

// progress returns what prints progress: nothing, unless stderr is a terminal.
func progress(cmd *cobra.Command, isTerminal bool) func(string) {
	if !isTerminal {
		return func(string) {}
	}
	return func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), output.OneLine(line)) }
}
