package main

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// version is set by the build (-X main.version=…).
var version = "devel"

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "coe-bridge",
		Short: "Pod networking from one declarative model",
		Long: `coe-bridge takes pods and services from Kubernetes or over RESTCONF, maps them to
OpenDaylight's Netvirt model and makes a network backend (OVN or OpenDaylight) agree
with it.

Every flag can be given as an environment variable (COE_BRIDGE_ and the flag's
name in capitals, with _ for -) and in a YAML file (--config). A flag wins over
the environment, the environment over the file.`,
		Example: `  # try it: no root, nothing kept, user admin, password admin
  coe-bridge serve --dev

  # what would this pod become?
  coe-bridge plan -f pod.json

  # look at a running bridge
  coe-bridge status
  coe-bridge get pods -w

  # tell it pods, services and pools
  coe-bridge apply -f network.yaml
  coe-bridge watch pods

  # what is wrong with this pod?
  coe-bridge trace default/web`,
		SilenceUsage:          true,
		SilenceErrors:         true,
		DisableFlagsInUseLine: true,
		Args:                  cobra.ArbitraryArgs, // unknownCommand says more
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return unknownCommand(cmd, args[0])
		},
	}
	var file string
	root.PersistentFlags().StringVar(&file, "config", "", "YAML file with flags by name, a line each (listen: 127.0.0.1:8181)")
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		return applySettings(cmd, file)
	}
	root.AddCommand(newServe(), newAgent(), newDoctor(), newPlan(), newConvert(), newGet(), newApply(), newDelete(), newWatch(), newStatus(), newTrace(), newPasswd(), newCompletion(), newVersion())
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetFlagErrorFunc(flagError)
	return root
}

// unknownCommand says which commands may be meant.
func unknownCommand(root *cobra.Command, name string) error {
	meant := ""
	if like := root.SuggestionsFor(name); len(like) > 0 {
		meant = "did you mean " + strings.Join(like, " or ") + "? "
	}
	return fmt.Errorf("unknown command %q: %s%s --help lists all", name, meant, root.Name())
}

// flagError says where the flags of a command are, and to who looks for kubectl's -n how
// a namespace is named.
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
