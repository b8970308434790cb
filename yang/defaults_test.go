package yang

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

func withDefaults(d *Data, tag bool) *Data {
	var added []*Data
	out := AddDefaults(d, func(*Node) bool { return true }, func(leaf *Data) { added = append(added, leaf) })
	if tag {
		for _, leaf := range added {
			TagDefault(leaf)
		}
	}
	return out
}

// TestDefaultsAsYanglint compares the modes of RFC 6243 with libyang, for every valid document. A leaf
// that was set to its default is not tagged.
func TestDefaultsAsYanglint(t *testing.T) {
	schema, lint := sample(t), yanglint(t)
	modules := newLinter(t, schema).modules
	modules = append(modules, "../restconf/modules/ietf-netconf-with-defaults.yang") // whose attribute it is
	for mode, ours := range map[string]func(*Data) *Data{
		"all":             func(d *Data) *Data { return withDefaults(d, false) },
		"implicit-tagged": func(d *Data) *Data { return withDefaults(d, true) },
		"trim":            TrimDefaults,
	} {
		for i, document := range validDocuments(t) {
			if bytes.Contains(document, []byte("coe-status:")) {
				continue // it has no defaults, and libyang gives its times another form
			}
			file := inMemory(t) + "/document.json"
			require.NoError(t, os.WriteFile(file, document, 0o600))
			args := append([]string{"-e", "-p", ".", "-f", "json", "-d", mode, "-t", "data"}, modules...)
			out, err := exec.CommandContext(t.Context(), lint, append(args, file)...).CombinedOutput()
			require.NoError(t, err, "%s", out)
			var theirs map[string]json.RawMessage
			require.NoError(t, json.Unmarshal(out, &theirs))
			for _, top := range decoded(t, schema, "", string(document)) {
				var buf bytes.Buffer
				EncodeObject(&buf, ours(top))
				require.JSONEq(t, string(theirs[top.Node.Module.Name+":"+top.Node.Name]), buf.String(), "%s of document %d", mode, i)
			}
		}
	}
}
