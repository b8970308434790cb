package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

func everyCommand(cmd *cobra.Command, do func(*cobra.Command)) {
	do(cmd)
	for _, c := range cmd.Commands() {
		everyCommand(c, do)
	}
}

func TestEveryHelpTeaches(t *testing.T) {
	everyCommand(newRoot(), func(cmd *cobra.Command) {
		path := strings.Fields(cmd.CommandPath())[1:]
		t.Run(strings.Join(path, " "), func(t *testing.T) {
			help, err := run(t, "", append(path, "--help")...)
			require.NoError(t, err)
			require.Contains(t, help, "Examples:\n  ")
			require.False(t, strings.HasSuffix(cmd.Short, "."), "a line in a list has no full stop")
			for line := range strings.Lines(help) {
				line = strings.TrimSuffix(line, "\n")
				require.Equal(t, strings.TrimRight(line, " \t"), line, "no blanks at the end of a line")
			}
		})
	})
}

// The examples show only commands and flags that exist.
func TestExamplesParse(t *testing.T) {
	everyCommand(newRoot(), func(cmd *cobra.Command) {
		example := strings.ReplaceAll(cmd.Example, "\\\n", " ")
		for line := range strings.Lines(example) {
			line, _, _ = strings.Cut(line, " #")
			_, words, found := strings.Cut(line, "coe-bridge ")
			if !found || strings.HasPrefix(strings.TrimSpace(line), "#") {
				continue
			}
			words, _, _ = strings.Cut(words, ">")
			words, _, _ = strings.Cut(words, ")")
			t.Run(words, func(t *testing.T) {
				named, args, err := newRoot().Find(strings.Fields(words))
				require.NoError(t, err)
				require.NoError(t, named.ParseFlags(args))
				require.NotEqual(t, "get", named.Name())
				require.NotEqual(t, "coe-bridge", named.Name())
			})
		}
	})
}

func TestUnknownNames(t *testing.T) {
	for _, c := range []struct {
		args string
		says []string
	}{
		{"serv", []string{`unknown command "serv": did you mean serve? coe-bridge --help lists all`}},
		{"nothing --like this", []string{"unknown flag: --like; coe-bridge --help lists the flags"}},
		{"xyzzy", []string{`unknown command "xyzzy": coe-bridge --help lists all`}},
		{"get pods -n default", []string{"-n: name what is in a namespace as NAMESPACE/NAME; coe-bridge get pods --help lists the flags"}},
		{"delete pod web --namespace=default", []string{"unknown flag: --namespace: name what is in a namespace as NAMESPACE/NAME; coe-bridge delete --help"}},
		{"trace", []string{"trace: name one pod as NAMESPACE/POD"}},
		{"trace web", []string{"trace web: name one pod as NAMESPACE/POD"}},
		{"gateway foo", []string{"gateway foo: unknown; want init, remove, nics-to-bridge, bridge-to-nics or release-nics (coe-bridge gateway --help)"}},
		{"gateway nics-to-bridge", []string{"nics-to-bridge: name the NICs"}},
		{"gateway bridge-to-nics", []string{"bridge-to-nics: name the bridges"}},
		{"gateway nics-to-bridge eth0 --ovs-db unix:/none", []string{"no connection to the switch at unix:/none", "no such file or directory", "start Open vSwitch, or name its database with --ovs-db"}},
		{"get foo", []string{"get foo", "elan-instances, vpn-instances, interfaces, pods, services, pools, leases, egressips, gateways, problems, endpoints, nodes, clusters, policies (coe-bridge get --help)"}},
		{"status busybox1", []string{"coe-bridge status busybox1: it takes no name"}},
		{"apply -f x --dry-run maybe", []string{"want none, client or server"}},
		{"get pods -o xml", []string{"want table, json or yaml"}},
		{"completion tcsh", []string{`"tcsh": want bash, zsh or fish`}},
		{"serve --nosuch", []string{"unknown flag: --nosuch; coe-bridge serve --help lists the flags"}},
	} {
		t.Run(c.args, func(t *testing.T) {
			_, err := run(t, "", strings.Fields(c.args)...)
			require.Error(t, err)
			for _, s := range c.says {
				require.ErrorContains(t, err, s)
			}
		})
	}
}

func TestGetAloneIsHelp(t *testing.T) {
	help, err := run(t, "", "get")
	require.NoError(t, err)
	get, _, err := newRoot().Find([]string{"get"})
	require.NoError(t, err)
	for _, cmd := range get.Commands() {
		require.Contains(t, help, "\n  "+cmd.Name()+" ")
	}
}

func TestVersion(t *testing.T) {
	out, err := run(t, "", "version")
	require.NoError(t, err)
	require.Regexp(t, `^coe-bridge devel \(go1\.\S+\)\n$`, out)
}

// The scripts are ones that their shells read, where those are installed.
func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		t.Run(shell, func(t *testing.T) {
			script, err := run(t, "", "completion", shell)
			require.NoError(t, err)
			require.Contains(t, script, "__complete")
			if _, err := exec.LookPath(shell); err != nil {
				return
			}
			out, err := exec.CommandContext(t.Context(), shell, "-n", file(t, "script", script)).CombinedOutput()
			require.NoError(t, err, string(out))
		})
	}
	out, err := run(t, "", "__complete", "serve", "--backend", "")
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(out, "memory\novn\n"), out)
	out, err = run(t, "", "__complete", "get", "p")
	require.NoError(t, err)
	require.Contains(t, out, "pods\t")
}

// Nothing is coloured, so nobody need be asked not to colour it.
func TestNoColour(t *testing.T) {
	everyCommand(newRoot(), func(cmd *cobra.Command) {
		require.NotContains(t, cmd.UsageString(), "\x1b")
	})
	require.NoError(t, os.Unsetenv("NO_COLOR"))
	out, err := run(t, `{"pod:pods":[]}`, "plan", "-f", "-")
	require.NoError(t, err)
	require.NotContains(t, out, "\x1b")
}
