package openapi

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/yang"
)

// written returns the document of all modules. In it, all configuration can be written.
func written(t *testing.T) (*yang.Schema, *openapi3.T) {
	t.Helper()
	schema, err := yang.Load()
	require.NoError(t, err)
	text, err := Write(Config{
		Schema: schema, Version: "1",
		Writable: func(n *yang.Node) bool { return n.Config },
		Placed:   func(n *yang.Node) bool { return n.OrderedByUser },
		Says:     func(*yang.Node) string { return "" },
	})
	require.NoError(t, err)
	doc, err := openapi3.NewLoader().LoadFromData(text)
	require.NoError(t, err)
	require.NoError(t, doc.Validate(t.Context()))
	return schema, doc
}

// check validates the value of a top container by the document.
func check(doc *openapi3.T, name, suffix string, value any) error {
	return doc.Components.Schemas[strings.ReplaceAll(name, ":", ".")+suffix].Value.VisitJSON(value, openapi3.EnableJSONSchema2020())
}

// Data that are valid by YANG must be valid by the document.
func TestValidDataAreValid(t *testing.T) {
	_, doc := written(t)
	files, err := filepath.Glob("../../yang/testdata/valid/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		var tops map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(text, &tops))
		for name, raw := range tops {
			if strings.HasPrefix(name, "sample:") || bytes.Contains(raw, []byte(`"sample:`)) {
				continue // it has data of a module that the tests of package yang add
			}
			var value any
			require.NoError(t, json.Unmarshal(raw, &value))
			require.NoError(t, check(doc, name, "", value), name)
		}
	}
}

// YANG must refuse everything that the document refuses. Otherwise a client that checks the
// document could not send a valid request.
func TestRefusedDataAreRefused(t *testing.T) {
	schema, doc := written(t)
	const uid = `"9f2a6d5e-0000-4000-8000-00000000000a"`
	for name, body := range map[string]string{
		"missing key":    `{"pod:coe":{"pods":[{"name":"a"}]}}`,
		"unknown leaf":   `{"pod:coe":{"pods":[{"uid":` + uid + `,"x":1}]}}`,
		"quoted number":  `{"pod:coe":{"pods":[{"uid":` + uid + `,"interface":[{"uid":` + uid + `,"segmentation-id":"7"}]}]}}`,
		"large number":   `{"pod:coe":{"pods":[{"uid":` + uid + `,"interface":[{"uid":` + uid + `,"segmentation-id":4294967296}]}]}}`,
		"no enum":        `{"pod:coe":{"pods":[{"uid":` + uid + `,"interface":[{"uid":` + uid + `,"network-type":"vxlan"}]}]}}`,
		"list is object": `{"pod:coe":{"pods":{"uid":` + uid + `}}}`,
		"null":           `{"pod:coe":null}`,
	} {
		_, err := schema.DecodeJSON([]byte(body), nil, "", yang.Strict)
		require.Error(t, err, name)
		var tops map[string]any
		require.NoError(t, json.Unmarshal([]byte(body), &tops))
		require.Error(t, check(doc, "pod:coe", ".write", tops["pod:coe"]), name)
	}
}

func TestValues(t *testing.T) {
	for name, c := range map[string]struct {
		given yang.Type
		want  string
	}{
		"string":   {yang.Type{JSON: "string", Least: "1", Most: "18446744073709551615"}, `{"type":"string","minLength":1}`},
		"pattern":  {yang.Type{JSON: "string", Patterns: []string{`^(?:\p{Nd}+)$`, `^(?:\p{L}+)$`}}, `{"type":"string","allOf":[{"pattern":"^(?:[0-9]+)$"}]}`},
		"format":   {yang.Type{JSON: "string", Typedef: "ipv4-address"}, `{"type":"string","format":"ipv4"}`},
		"values":   {yang.Type{JSON: "string", Values: []string{"a", "b"}}, `{"type":"string","enum":["a","b"]}`},
		"integer":  {yang.Type{JSON: "integer", Least: "-1", Most: "7"}, `{"type":"integer","minimum":-1,"maximum":7}`},
		"64 bits":  {yang.Type{JSON: "string", Quoted: true, Most: "7"}, `{"type":"string","pattern":"^-?[0-9]+$"}`},
		"boolean":  {yang.Type{JSON: "boolean"}, `{"type":"boolean"}`},
		"empty":    {yang.Type{JSON: "empty"}, `{"type":"array","items":{"type":"null"},"minItems":1,"maxItems":1}`},
		"union":    {yang.Type{Members: []yang.Type{{JSON: "boolean"}, {JSON: "string"}}}, `{"anyOf":[{"type":"boolean"},{"type":"string"}]}`},
		"anything": {yang.Type{JSON: "string"}, `{"type":"string"}`},
	} {
		got, err := json.Marshal(valueSchema(c.given))
		require.NoError(t, err)
		require.JSONEq(t, c.want, string(got), name)
	}
}
