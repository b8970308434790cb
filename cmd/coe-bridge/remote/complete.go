package remote

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/entrykind"
	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/flags"
	"github.com/coe-bridge/coe-bridge/restconf/document"
)

// completeWithin bounds a request to the bridge while a shell waits.
const completeWithin = 2 * time.Second

// completeKinds completes a kind.
func completeKinds(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var kindsAndWhat []string
	for _, k := range entrykind.All() {
		kindsAndWhat = append(kindsAndWhat, k.Name+"\t"+k.Short)
	}
	return kindsAndWhat, cobra.ShellCompDirectiveNoFileComp
}

// completeEntries completes a kind, and then names of entries in the bridge.
func completeEntries(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return completeKinds(cmd, args, begun)
	}
	k, err := entrykind.Named(args[0])
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return completeNames(cmd, k, args[1:]), cobra.ShellCompDirectiveNoFileComp
}

// completePod completes the name of one pod.
func completePod(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	k, err := entrykind.Named("pods")
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return completeNames(cmd, k, nil), cobra.ShellCompDirectiveNoFileComp
}

// completeNames returns the names of a kind's entries; none if the bridge does not answer,
// because a shell shows no errors.
func completeNames(cmd *cobra.Command, k entrykind.Kind, given []string) (names []string) {
	ctx, cancel := context.WithTimeout(cmd.Context(), completeWithin)
	defer cancel()
	c, err := newEditor(flags.CompletionFlags(cmd, completeWithin))
	if err != nil {
		return nil
	}
	all, err := c.entries(ctx, "/"+k.Top)
	if err != nil {
		return nil
	}
	for _, e := range all {
		if k.Has(e) && !anyCalls(e, given) {
			names = append(names, completion(e))
		}
	}
	return names
}

func anyCalls(e *document.Entry, names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return entrykind.Calls(e, name) })
}

// completion is the name of an entry, and its description for the shell.
func completion(e *document.Entry) string {
	key := strings.Join(e.Key, ",")
	if name := entrykind.Label(e); name != "" {
		return name + "\t" + key
	}
	return key
}
