package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/coe-bridge/coe-bridge/restconf/document"
)

// completeWithin is how long a shell waits for a bridge.
const completeWithin = 2 * time.Second

// completeKinds completes a kind.
func completeKinds(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var kindsAndWhat []string
	for _, k := range kinds() {
		kindsAndWhat = append(kindsAndWhat, k.name+"\t"+k.short)
	}
	return kindsAndWhat, cobra.ShellCompDirectiveNoFileComp
}

// completeEntries completes a kind, and then names of entries that the bridge has.
func completeEntries(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return completeKinds(cmd, args, begun)
	}
	k, err := kindNamed(args[0])
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return completeNames(cmd, k, args[1:]), cobra.ShellCompDirectiveNoFileComp
}

// completePod completes the name of one pod.
func completePod(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	k, err := kindNamed("pods")
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return completeNames(cmd, k, nil), cobra.ShellCompDirectiveNoFileComp
}

// completeNames are the names of a kind's entries; none where the bridge does not
// answer, since a shell has no place for errors.
func completeNames(cmd *cobra.Command, k kind, given []string) (names []string) {
	ctx, cancel := context.WithTimeout(cmd.Context(), completeWithin)
	defer cancel()
	c, err := completionFlags(cmd).editor()
	if err != nil {
		return nil
	}
	all, err := c.entries(ctx, "/"+k.top)
	if err != nil {
		return nil
	}
	for _, e := range all {
		if k.isOf(e) && !anyCalls(e, given) {
			names = append(names, completion(e))
		}
	}
	return names
}

func anyCalls(e *document.Entry, names []string) bool {
	for _, name := range names {
		if isCalled(e, name) {
			return true
		}
	}
	return false
}

// completion is what is typed for an entry, and what else there is to say of it.
func completion(e *document.Entry) string {
	key := strings.Join(e.Key, ",")
	if name := label(e); name != "" {
		return name + "\t" + key
	}
	return key
}

// completionFlags are the values of a command's flags for the bridge, as they are completed: the
// environment and the file of settings count.
func completionFlags(cmd *cobra.Command) *clientFlags {
	file, _ := cmd.Flags().GetString("config")
	_ = applySettings(cmd, file) // what is wrong with them is said when the command is run
	text := func(name string) string {
		value, _ := cmd.Flags().GetString(name)
		return value
	}
	return &clientFlags{
		server: text("server"), user: text("user"), passwordFile: text("password-file"),
		caFile: text("ca-file"), cert: text("cert"), key: text("key"), timeout: completeWithin,
	}
}
