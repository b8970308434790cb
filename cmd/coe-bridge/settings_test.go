package main

import (
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// flagsOf parses a command line without running the command, and returns its
// flags as they would be.
func flagsOf(t *testing.T, command string, args ...string) (func(flag string) string, error) {
	t.Helper()
	root := newRoot()
	cmd, _, err := root.Find([]string{command})
	require.NoError(t, err)
	cmd.RunE = func(*cobra.Command, []string) error { return nil }
	root.SetArgs(append([]string{command}, args...))
	err = root.ExecuteContext(t.Context())
	return func(flag string) string { return cmd.Flags().Lookup(flag).Value.String() }, err
}

func TestPrecedenceOfSettings(t *testing.T) {
	config := file(t, "config.yaml", "listen: file:1\nbackend: ovn\nlog-level: debug\n")
	t.Setenv("COE_BRIDGE_LISTEN", "env:1")
	t.Setenv("COE_BRIDGE_BACKEND", "memory")
	t.Setenv("COE_BRIDGE_LOG_FORMAT", "") // empty is as not set
	value, err := flagsOf(t, "serve", "--config", config, "--listen", "flag:1")
	require.NoError(t, err)
	require.Equal(t, "flag:1", value("listen"))
	require.Equal(t, "[memory]", value("backend"), "environment before file")
	require.Equal(t, "debug", value("log-level"), "file before default")
	require.Equal(t, "text", value("log-format"), "default")
}

func TestConfigFileFromEnvironment(t *testing.T) {
	t.Setenv("COE_BRIDGE_CONFIG", file(t, "config.yaml", "listen: file:1"))
	value, err := flagsOf(t, "serve")
	require.NoError(t, err)
	require.Equal(t, "file:1", value("listen"))
}

// One file serves all commands.
func TestFileWithFlagsOfSeveralCommands(t *testing.T) {
	config := file(t, "config.yaml", "data-dir: /nonexistent\nserver: http://bridge:1\nuser: robot\nwatch: true\n")
	value, err := flagsOf(t, "status", "--config", config)
	require.NoError(t, err)
	require.Equal(t, "http://bridge:1", value("server"))
	require.Equal(t, "true", value("watch"))
	value, err = flagsOf(t, "serve", "--config", config)
	require.NoError(t, err)
	require.Equal(t, "/nonexistent", value("data-dir"))
}

func TestValuesInFile(t *testing.T) {
	for _, c := range []struct{ name, yaml, command, flag, want string }{
		{"list", "etcd-endpoints: [https://a:1, https://b:1]", "serve", "etcd-endpoints", "[https://a:1,https://b:1]"},
		{"list in block style", "etcd-endpoints:\n- https://a:1\n- https://b:1\n", "serve", "etcd-endpoints", "[https://a:1,https://b:1]"},
		{"one value of a list", "etcd-endpoints: https://a:1", "serve", "etcd-endpoints", "[https://a:1]"},
		{"values with commas", "file: ['a,b', c]", "plan", "file", `["a,b",c]`},
		{"list for a flag with commas", "ovn-nb: [tcp:a:6641, tcp:b:6641]", "serve", "ovn-nb", "tcp:a:6641,tcp:b:6641"},
		{"number", "body-limit: 104857600", "serve", "body-limit", "104857600"},
		{"duration", "resync-interval: 90s", "serve", "resync-interval", "1m30s"},
		{"boolean", "dev: true", "serve", "dev", "true"},
		{"empty file", "", "serve", "listen", "127.0.0.1:8181"},
		{"comment alone", "# nothing\n", "serve", "listen", "127.0.0.1:8181"},
	} {
		t.Run(c.name, func(t *testing.T) {
			value, err := flagsOf(t, c.command, "--config", file(t, "config.yaml", c.yaml))
			require.NoError(t, err)
			require.Equal(t, c.want, value(c.flag))
		})
	}
}

func TestBadSettings(t *testing.T) {
	for _, c := range []struct{ name, yaml, says string }{
		{"unknown name", "listn: 127.0.0.1:1", `"listn" is not a flag; coe-bridge serve --help lists them`},
		{"help in a file", "help: true", `"help" is not a flag`},
		{"a file of files", "config: other.yaml", `"config" is not a flag`},
		{"password", "password: secret", `"password" is not a flag`},
		{"name twice", "listen: a:1\nlisten: b:1\n", "listen"},
		{"no value", "listen:\n", "listen: want a value, or a list of values"},
		{"nested", "listen: {host: a}", "listen: want a value, or a list of values"},
		{"no mapping", "- listen", `want lines like "listen: 127.0.0.1:8181"`},
		{"no YAML", "listen: [", "yaml"},
		{"bad value", "resync-interval: soon", "config.yaml: resync-interval: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := flagsOf(t, "serve", "--config", file(t, "config.yaml", c.yaml))
			require.ErrorContains(t, err, c.says)
			require.ErrorContains(t, err, "config.yaml")
		})
	}
	_, err := flagsOf(t, "serve", "--config", "/nonexistent")
	require.ErrorContains(t, err, "read --config: open /nonexistent")
	t.Setenv("COE_BRIDGE_BODY_LIMIT", "much")
	_, err = flagsOf(t, "serve")
	require.ErrorContains(t, err, "COE_BRIDGE_BODY_LIMIT: ")
}
