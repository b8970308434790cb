package output

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"sigs.k8s.io/yaml"
)

// OneLine escapes every character that is not visible in a line: controls, line feeds,
// bidirectional and zero width characters, and invalid UTF-8. It is for names that others
// chose, so that they cannot forge another row or line.
func OneLine(text string) string { return escape(text, "", surrogates) }

// escape writes unprintable characters, except for those to keep, as \uXXXX. far writes the
// characters beyond the first plane.
func escape(text, keep string, far func(rune) string) string {
	unsafe := func(r rune) bool { return !unicode.IsPrint(r) && !strings.ContainsRune(keep, r) }
	if utf8.ValidString(text) && !strings.ContainsFunc(text, unsafe) {
		return text
	}
	var out strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&out, `\x%02x`, text[0])
		case !unsafe(r):
			out.WriteString(text[:size])
		case r > 0xffff:
			out.WriteString(far(r))
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
		text = text[size:]
	}
	return out.String()
}

// surrogates writes a character as JSON does (RFC 8259 section 7).
func surrogates(r rune) string {
	high, low := utf16.EncodeRune(r)
	return fmt.Sprintf(`\u%04x\u%04x`, high, low)
}

// wide writes a character as YAML does in double quotes (YAML 1.2 section 5.7).
func wide(r rune) string { return fmt.Sprintf(`\U%08x`, r) }

// Terminal escapes all that is written to it, except for line feeds and tabs. JSON stays
// valid JSON with the same content. It is for one goroutine.
type Terminal struct {
	io.Writer
	part []byte // bytes of a character that the next Write completes
}

// Write implements io.Writer.
func (t *Terminal) Write(p []byte) (int, error) {
	text := slices.Concat(t.part, p)
	whole := len(text)
	for back := 1; back < utf8.UTFMax && back <= len(text); back++ {
		if b := text[len(text)-back]; utf8.RuneStart(b) {
			if !utf8.FullRune(text[len(text)-back:]) {
				whole -= back
			}
			break
		}
	}
	t.part = bytes.Clone(text[whole:])
	if _, err := io.WriteString(t.Writer, escape(string(text[:whole]), "\n\t", surrogates)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// YAML turns JSON into YAML that a terminal can show. If a string has to be escaped, the
// result is JSON, which is YAML with all strings in quotes.
func YAML(text []byte) ([]byte, error) {
	if !bytes.Contains(text, []byte(`\u`)) && escape(string(text), "\n\t", wide) == string(text) {
		plain, err := yaml.JSONToYAML(text)
		if err != nil {
			return nil, fmt.Errorf("write YAML: %w", err)
		}
		return plain, nil
	}
	var quoted bytes.Buffer
	if err := json.Indent(&quoted, bytes.TrimSpace(text), "", "  "); err != nil {
		return nil, fmt.Errorf("write YAML: %w", err)
	}
	return []byte(escape(quoted.String(), "\n", wide) + "\n"), nil
}
