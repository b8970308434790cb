package yang

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzDecodeJSON checks, for any body in both modes: the decoder returns data, or Errors with
// messages; the data can be encoded and decoded in strict mode without a change; and merging
// it with itself changes nothing.
func FuzzDecodeJSON(f *testing.F) {
	schema := sample(f)
	for _, one := range exchanges(f) {
		f.Add([]byte(one.Body), one.In != "")
	}
	for _, valid := range validDocuments(f) {
		f.Add(valid, false)
	}
	for _, name := range []string{"spec-pool.json", "spec-pod.json", "spec-service.json"} {
		body, err := os.ReadFile("testdata/" + name)
		require.NoError(f, err)
		f.Add(body, true)
	}
	f.Fuzz(func(t *testing.T, body []byte, below bool) {
		requireSound(t, schema, schema.DecodeJSON, body, below)
	})
}

// FuzzDecodeXML is FuzzDecodeJSON for XML.
func FuzzDecodeXML(f *testing.F) {
	schema := sample(f)
	for _, valid := range validDocuments(f) {
		f.Add([]byte(encodedXML(decoded(f, schema, "", string(valid)))), false)
	}
	for _, one := range hostile() {
		if len(one.body) < 1<<12 { // large seeds make the fuzzer slow
			f.Add([]byte(one.body), true)
		}
	}
	f.Fuzz(func(t *testing.T, body []byte, below bool) {
		requireSound(t, schema, schema.DecodeXML, body, below)
	})
}

// requireSound decodes a body, at the top level or below pod:coe, in both modes. A refused body
// has errors and no data. Accepted data can be encoded and decoded in JSON and XML without a
// change. The lenient mode decodes a body that the strict mode accepts to the same data.
func requireSound(t *testing.T, schema *Schema, decode func([]byte, *Node, string, Mode) ([]*Data, error), body []byte, below bool) {
	t.Helper()
	var parent *Node
	at := ""
	if below {
		parent, at = find(t, schema, "pod:coe"), "/pod:coe"
	}
	strict, refused := decode(body, parent, at, Strict)
	for _, mode := range []Mode{Strict, Lenient} {
		got, err := decode(body, parent, at, mode)
		if refused == nil {
			require.NoError(t, err)
			require.Equal(t, encoded(strict), encoded(got))
		}
		if err != nil {
			requireErrors(t, err)
			require.Nil(t, got)
			continue
		}
		requireRoundTrip(t, schema, parent, at, got)
		if len(got) > 0 {
			again, err := schema.DecodeXML([]byte(encodedXML(got)), parent, at, Strict)
			require.NoError(t, err)
			require.Equal(t, encoded(got), encoded(again))
		}
	}
}

func requireErrors(t *testing.T, err error) {
	t.Helper()
	var errs Errors
	require.True(t, errors.As(err, &errs))
	require.NotEmpty(t, errs)
	for _, one := range errs {
		require.NotEmpty(t, one.Tag)
		require.NotEmpty(t, one.Message)
	}
}

func requireRoundTrip(t *testing.T, schema *Schema, parent *Node, at string, siblings []*Data) {
	t.Helper()
	var first bytes.Buffer
	EncodeJSON(&first, siblings, RFC7951)
	again, err := schema.DecodeJSON(first.Bytes(), parent, at, Strict)
	require.NoError(t, err)
	require.Equal(t, first.String(), encoded(again))
	for _, d := range siblings {
		_ = schema.Validate(d, at, func(*Node, string) bool { return true })
		require.Equal(t, encoded([]*Data{d}), encoded([]*Data{Merge(d, d)}))
		if d.Node.Kind == Container || d.Node.Kind == List {
			requireStored(t, d)
		}
	}
}

// requireStored requires that the stored form of d is decoded as d.
func requireStored(t *testing.T, d *Data) {
	t.Helper()
	var stored bytes.Buffer
	EncodeObject(&stored, d)
	back, err := DecodeObject(stored.Bytes(), d.Node)
	require.NoError(t, err)
	require.Equal(t, encoded([]*Data{d}), encoded([]*Data{back}))
}
