package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"
)

// envPrefix is what the environment variable of a flag begins with.
const envPrefix = "COE_BRIDGE_"

// applySettings sets the command's flags that were not given: from the
// environment, else from the YAML file.
func applySettings(cmd *cobra.Command, file string) error {
	if file == "" {
		file = os.Getenv(envName("config"))
	}
	settings, err := readSettings(cmd, file)
	if err != nil {
		return err
	}
	var failed error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Changed || failed != nil {
			return
		}
		value, from, found := os.Getenv(envName(f.Name)), "environment variable "+envName(f.Name), true
		if value == "" {
			value, found = settings[f.Name]
			from = file + ": " + f.Name
		}
		if !found {
			return
		}
		if err := cmd.Flags().Set(f.Name, value); err != nil {
			failed = fmt.Errorf("%s: %w", from, err)
		}
	})
	return failed
}

func envName(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// readSettings reads flags by name from a YAML file. A name that is no flag of
// any command is an error; one that is a flag of another command is not, so that
// one file serves them all.
func readSettings(cmd *cobra.Command, file string) (map[string]string, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read --config: %w", err)
	}
	var values map[string]any
	if err := yaml.UnmarshalStrict(text, &values); err != nil {
		return nil, fmt.Errorf("read --config %s: %w", file, err)
	}
	known := map[string]bool{}
	for _, c := range append(cmd.Root().Commands(), cmd.Root()) {
		c.Flags().VisitAll(func(f *pflag.Flag) { known[f.Name] = true })
		c.PersistentFlags().VisitAll(func(f *pflag.Flag) { known[f.Name] = true })
	}
	settings := map[string]string{}
	for name, value := range values {
		if !known[name] {
			return nil, fmt.Errorf("read --config %s: %q is no flag; coe-bridge serve --help lists them", file, name)
		}
		settings[name] = settingText(value)
	}
	return settings, nil
}

// settingText is a YAML value as the flag would be written.
func settingText(value any) string {
	list, ok := value.([]any)
	if !ok {
		return fmt.Sprint(value)
	}
	parts := make([]string, len(list))
	for i, v := range list {
		parts[i] = fmt.Sprint(v)
	}
	return strings.Join(parts, ",")
}
