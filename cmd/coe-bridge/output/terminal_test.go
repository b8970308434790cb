package output

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// FuzzTerminal prints a name of an adversary's choice in every format. No row is
// forged, nothing unprintable is left, and JSON and YAML have the same content.
func FuzzTerminal(f *testing.F) {
	for _, name := range []string{
		"web", "a\nshop   in sync", "a\tb", "\u202eevil\u2066", "\u200f\u061c\ufeff", "\x1b[2J", "\xff\xfe", "\U000e0001", "\u0085\u2028", "\u0089", `a\u202eb`, "",
	} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		rows := Table{Columns: []string{"NAME", "STATE"}, Rows: [][]string{{name, "behind"}}}
		data := map[string]string{"name": strings.ToValidUTF8(name, "?")}
		for _, format := range []Format{"table", "json", "yaml"} {
			var out bytes.Buffer
			require.NoError(t, format.Print(&Terminal{Writer: &out}, rows, data))
			require.True(t, utf8.ValidString(out.String()))
			for _, r := range out.String() {
				require.True(t, unicode.IsPrint(r) || r == '\n', "%s: %U in %q", format, r, out.String())
			}
			var read map[string]string
			switch format {
			case "table":
				require.Equal(t, 2, strings.Count(out.String(), "\n"), "%q", out.String())
			case "json":
				require.NoError(t, json.Unmarshal(out.Bytes(), &read))
				require.Equal(t, data, read)
			case "yaml":
				require.NoError(t, yaml.Unmarshal(out.Bytes(), &read))
				require.Equal(t, data, read)
			}
		}
	})
}

// A character that two writes share is not taken for invalid UTF-8.
func TestTerminalOfParts(t *testing.T) {
	const text = "grün 網 \U0001f600 \u202e\n"
	var whole, parts bytes.Buffer
	_, err := (&Terminal{Writer: &whole}).Write([]byte(text))
	require.NoError(t, err)
	w := &Terminal{Writer: &parts}
	for n := range len(text) {
		_, err := w.Write([]byte{text[n]})
		require.NoError(t, err)
	}
	require.Equal(t, "grün 網 \U0001f600 \\u202e\n", whole.String())
	require.Equal(t, whole.String(), parts.String())
}
