package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
)

func newCompletion() *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "Print a script that completes commands and flags in a shell",
		Example: `  source <(coe-bridge completion bash)
  coe-bridge completion bash > /etc/bash_completion.d/coe-bridge
  coe-bridge completion zsh > "${fpath[1]}/_coe-bridge"
  coe-bridge completion fish > ~/.config/fish/completions/coe-bridge.fish`,
		ValidArgs: []string{"bash", "zsh", "fish"},
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("completion: want one of bash, zsh or fish")
			}
			return nil
		},
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			root, out := cmd.Root(), cmd.OutOrStdout()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(out, true)
			case "zsh":
				return root.GenZshCompletion(out)
			case "fish":
				return root.GenFishCompletion(out, true)
			}
			return fmt.Errorf("shell %q: want bash, zsh or fish", args[0])
		},
	}
}
