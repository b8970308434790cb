package manifest

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"

	"sigs.k8s.io/yaml"
)

// jsonDocuments returns a function that returns one object after another, and io.EOF.
func jsonDocuments(text []byte) func() ([]byte, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	return func() ([]byte, error) {
		var document json.RawMessage
		err := decoder.Decode(&document)
		return document, err
	}
}

// yamlDocuments returns a function that returns one document after another as JSON, without
// empty documents, and io.EOF.
func yamlDocuments(text []byte) func() ([]byte, error) {
	return func() ([]byte, error) {
		for len(text) > 0 {
			var document []byte
			document, text = cutDocument(text)
			converted, err := yaml.YAMLToJSONStrict(document)
			if err != nil || string(converted) != "null" {
				return converted, err
			}
		}
		return nil, io.EOF
	}
}

// cutDocument splits YAML at the first document marker. The rest of the marker's line belongs to
// the next document.
func cutDocument(text []byte) (document, rest []byte) {
	for at := 0; at < len(text); {
		if beginsDocument(text[at:]) {
			return text[:at], bytes.TrimLeft(text[at+len(marker):], " \t")
		}
		end := bytes.IndexByte(text[at:], '\n')
		if end < 0 {
			break
		}
		at += end + 1
	}
	return text, nil
}

const marker = "---" // or "...", which has the same length

// beginsDocument reports whether a line is a marker (YAML 1.2, section 9.1): three characters,
// then nothing or white space.
func beginsDocument(line []byte) bool {
	if !bytes.HasPrefix(line, []byte(marker)) && !bytes.HasPrefix(line, []byte("...")) {
		return false
	}
	return len(line) == len(marker) || strings.ContainsRune(" \t\r\n", rune(line[len(marker)]))
}
