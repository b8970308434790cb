package flags

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"
)

// EnvPrefix is the prefix of the environment variables of flags.
const EnvPrefix = "COE_BRIDGE_"

// ApplySettings sets the flags of a command that the command line does not set, from the
// environment or else from the YAML file.
func ApplySettings(cmd *cobra.Command, file string) error {
	file = cmp.Or(file, os.Getenv(envName("config")))
	settings, err := readSettings(cmd, file)
	if err != nil {
		return err
	}
	var failed error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Changed || failed != nil || !settable(f) {
			return
		}
		if value := os.Getenv(envName(f.Name)); value != "" {
			failed = wrap(envName(f.Name), cmd.Flags().Set(f.Name, value))
		} else if values, found := settings[f.Name]; found {
			failed = wrap(file+": "+f.Name, set(cmd.Flags(), f, values))
		}
	})
	return failed
}

// settable reports whether the environment and the file may set a flag.
func settable(f *pflag.Flag) bool { return f.Name != "config" && f.Name != "help" }

// set gives a flag the values from a file. The values of a flag that is not a pflag list are
// joined as on the command line.
func set(flags *pflag.FlagSet, f *pflag.Flag, values []string) error {
	if list, ok := f.Value.(pflag.SliceValue); ok {
		return list.Replace(values)
	}
	return flags.Set(f.Name, strings.Join(values, ","))
}

func wrap(where string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", where, err)
}

func envName(flag string) string {
	return EnvPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// readSettings reads flags by name from a YAML file. Flags of other commands are allowed,
// so that one file serves all commands. Any other name is an error.
func readSettings(cmd *cobra.Command, file string) (map[string][]string, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read --config: %w", err)
	}
	given, err := decodeSettings(text)
	if err != nil {
		return nil, fmt.Errorf("read --config %s: %w", file, err)
	}
	known := flagNames(cmd.Root())
	settings := map[string][]string{}
	for name, value := range given {
		if !known[name] {
			return nil, fmt.Errorf("read --config %s: %q is not a flag; coe-bridge serve --help lists them", file, name)
		}
		if settings[name], err = settingTexts(value); err != nil {
			return nil, fmt.Errorf("read --config %s: %s: %w", file, name, err)
		}
	}
	return settings, nil
}

// decodeSettings reads YAML, and keeps numbers as they are written.
func decodeSettings(text []byte) (map[string]any, error) {
	asJSON, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, err
	}
	var given map[string]any
	d := json.NewDecoder(bytes.NewReader(asJSON))
	d.UseNumber()
	if err := d.Decode(&given); err != nil {
		return nil, fmt.Errorf("want lines like \"listen: 127.0.0.1:8181\": %w", err)
	}
	return given, nil
}

// flagNames returns the flags of all commands.
func flagNames(cmd *cobra.Command) map[string]bool {
	known := map[string]bool{}
	add := func(f *pflag.Flag) { known[f.Name] = settable(f) }
	cmd.LocalFlags().VisitAll(add)
	for _, c := range cmd.Commands() {
		for name, is := range flagNames(c) {
			known[name] = is
		}
	}
	return known
}

// settingTexts returns a YAML value, or each element of a list, as on the command line.
func settingTexts(value any) ([]string, error) {
	list, ok := value.([]any)
	if !ok {
		list = []any{value}
	}
	texts := make([]string, len(list))
	for i, v := range list {
		switch v.(type) {
		case string, bool, json.Number:
			texts[i] = fmt.Sprint(v)
		default:
			return nil, fmt.Errorf("want a value, or a list of values")
		}
	}
	return texts, nil
}
