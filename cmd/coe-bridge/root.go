package main

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/connectivity"
	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/flags"
	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/node"
	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/passwd"
	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/plan"
	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/policy"
	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/remote"
	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/serve"
)

// version is set by the build (-X main.version=…).
var version = "devel"

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "coe-bridge",
		Short: "Pod networking from one declarative model",
		Long: `coe-bridge takes pods and services from Kubernetes or over RESTCONF, maps them to
OpenDaylight's Netvirt model, and programs a network backend (OVN or OpenDaylight).

Every flag can be set in the environment (COE_BRIDGE_ and the name of the flag in
capitals, with _ for -) and in a YAML file (--config). The command line overrides the
environment, and the environment overrides the file.`,
		Example: `  # try it without root: user admin, password admin, no data is kept
  coe-bridge serve --dev

  # show what a pod would become
  coe-bridge plan -f pod.json

  # look at a running bridge
  coe-bridge status
  coe-bridge get pods -w

  # write pods, services and pools
  coe-bridge apply -f network.yaml
  coe-bridge watch pods

  # find out what is wrong with a pod, and with the network of a cluster
  coe-bridge trace default/web
  coe-bridge connectivity test`,
		SilenceUsage:          true,
		SilenceErrors:         true,
		DisableFlagsInUseLine: true,
		Args:                  cobra.ArbitraryArgs, // unknownCommand suggests others
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return unknownCommand(cmd, args[0])
		},
	}
	var file string
	root.PersistentFlags().StringVar(&file, "config", "", "YAML file with flags by name, one in each line (listen: 127.0.0.1:8181)")
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		return flags.ApplySettings(cmd, file)
	}
	root.AddCommand(serve.New(version), node.NewAgent(version), node.NewDoctor(), node.NewGateway(), plan.New(), plan.NewConvert(), policy.New(), connectivity.New())
	root.AddCommand(remote.Commands()...)
	root.AddCommand(passwd.New(), newCompletion(), newVersion())
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetFlagErrorFunc(flagError)
	return root
}

// unknownCommand suggests commands with similar names.
func unknownCommand(root *cobra.Command, name string) error {
	meant := ""
	if like := root.SuggestionsFor(name); len(like) > 0 {
		meant = "did you mean " + strings.Join(like, " or ") + "? "
	}
	return fmt.Errorf("unknown command %q: %s%s --help lists all", name, meant, root.Name())
}

// flagError says where the flags of a command are listed. For kubectl's -n it says how to
// name a namespace.
func flagError(cmd *cobra.Command, err error) error {
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if ok && slices.Contains([]string{"n", "namespace"}, unknown.GetSpecifiedName()) {
		err = fmt.Errorf("%w: name what is in a namespace as NAMESPACE/NAME", err)
	}
	return fmt.Errorf("%w; %s --help lists the flags", err, cmd.CommandPath())
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  coe-bridge version",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			goVersion := "unknown"
			if info, ok := debug.ReadBuildInfo(); ok {
				goVersion = info.GoVersion
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "coe-bridge %s (%s)\n", version, goVersion)
			return err
		},
	}
}
