package yang

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// severalMutants is the number of JSON documents that are changed in several places.
const severalMutants = 1500

// leastMutants is the minimum number of documents.
const leastMutants = 5000

// mutantsOf returns changed documents of sample: each place in every way, then several at
// random places with a fixed seed.
func mutantsOf(t testing.TB, s *Schema) []mutant {
	t.Helper()
	mutants.once.Do(func() {
		documents := validDocuments(t)
		m := newMutator(t, s, documents)
		random := rand.New(rand.NewPCG(20261121, 1))
		for _, document := range documents {
			mutants.made = append(mutants.made, m.each(t, random, document)...)
		}
		for i := range severalMutants {
			mutants.made = append(mutants.made, m.several(t, random, documents[i%len(documents)]))
		}
	})
	return mutants.made
}

// mutants makes the documents once for all tests.
var mutants struct {
	once sync.Once
	made []mutant
}

// TestAgreesWithYanglint changes valid documents of all modules. This package and libyang must
// accept the same documents, and decode them to the same data.
func TestAgreesWithYanglint(t *testing.T) {
	schema := sample(t)
	requireAgreement(t, schema, mutantsOf(t, schema), "json", schema.DecodeJSON)
}

// TestDamageAgreesWithYanglint damages valid documents, byte by byte.
func TestDamageAgreesWithYanglint(t *testing.T) {
	schema := sample(t)
	requireAgreement(t, schema, damaged(t), "json", schema.DecodeJSON)
}

// damagedDocuments is the number of damaged documents.
const damagedDocuments = 5001

func damaged(t testing.TB) []mutant {
	t.Helper()
	random := rand.New(rand.NewPCG(20261121, 3))
	documents := validDocuments(t)
	out := make([]mutant, damagedDocuments)
	for i := range out {
		text := []byte(compact(t, documents[i%len(documents)]))
		at := random.IntN(len(text))
		end := min(len(text), at+random.IntN(3))
		text = slices.Replace(text, at, end, []byte(marks[random.IntN(len(marks))])...)
		out[i] = mutant{fmt.Sprintf("byte %d", at), text}
	}
	return out
}

// marks are inserted into documents. There is no surrogate pair, which libyang does not
// support.
var marks = []string{
	"", "", "{", "}", "[", "]", ",", "\"", "\\", "\\u0041", "\\ud83d", "\\/", "\\x", "0", "1", "-", "+", ".", "e", " ", "\n",
	"\t", "null", "true", "'", "//", "\x00", "\x7f", "\xff", "é", "\ufeff",
}

// TestXMLAgreesWithYanglint does the same in XML.
func TestXMLAgreesWithYanglint(t *testing.T) {
	schema := sample(t)
	requireAgreement(t, schema, xmlMutantsOf(t, schema), "xml", schema.DecodeXML)
}

type decodeFunc func(body []byte, parent *Node, at string, mode Mode) ([]*Data, error)

func requireAgreement(t *testing.T, s *Schema, documents []mutant, format string, decode decodeFunc) {
	t.Helper()
	texts := make([][]byte, len(documents))
	for i, m := range documents {
		texts[i] = m.text
	}
	accepted, wrong := 0, 0
	for i, theirs := range newLinter(t, s).judge(t, texts, format, "json") {
		got, ours := judged(s, decode, texts[i])
		if ours == nil {
			accepted++
		}
		if format == "json" && isNoJSON(ours, texts[i]) {
			continue
		}
		if said := disagreement(t, got, ours, theirs); said != "" {
			wrong++
			t.Errorf("%s: %s\n%s", documents[i].what, said, texts[i])
		}
		if wrong > 20 {
			t.Fatal("too many differences: the test stops here")
		}
	}
	require.Greater(t, len(documents), leastMutants)
	require.Greater(t, accepted, len(documents)/20, "too few documents are valid")
	require.Less(t, accepted, len(documents)*19/20, "too few documents are invalid")
	t.Logf("%d documents, %d of them valid", len(documents), accepted)
}

// disagreement describes how the two results for a document differ; it is empty if they agree,
// or differ on purpose.
func disagreement(t *testing.T, got []*Data, ours error, theirs answer) string {
	t.Helper()
	switch {
	case ours != nil && (theirs.err != nil || deliberate(ours, differences)), misplacedKey(theirs.err), notOctal(theirs.err):
		return ""
	case ours != nil:
		return fmt.Sprintf("yanglint takes it, ours: %v", ours)
	case theirs.err != nil:
		return fmt.Sprintf("ours takes it, yanglint: %v", theirs.err)
	}
	want, have := normal(t, theirs.text), normal(t, []byte(encoded(got)))
	if !reflect.DeepEqual(want, have) {
		return fmt.Sprintf("yanglint: %v\nours: %v", want, have)
	}
	return ""
}

// stateDefault is the only leaf of state data here with a default. libyang prints it if it is
// absent, with the value false.
const stateDefault = "replay-support"

// normal decodes a document and removes the differences in libyang's output: empty objects and
// arrays, stateDefault, and the forms of normalText.
func normal(t *testing.T, document []byte) any {
	t.Helper()
	var value any
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.UseNumber()
	require.NoError(t, decoder.Decode(&value))
	return prune(value)
}

func prune(value any) any {
	switch value := value.(type) {
	case map[string]any:
		out := map[string]any{}
		for name, member := range value {
			if member = prune(member); member != nil && (name != stateDefault || member != false) {
				out[name] = member
			}
		}
		if len(out) > 0 {
			return out
		}
		return nil
	case []any:
		if len(value) == 0 {
			return nil
		}
		if value[0] == nil {
			return "[null]"
		}
		out := make([]any, len(value))
		for i := range value {
			out[i] = prune(value[i])
		}
		return out
	case string:
		return normalText(value)
	}
	return value
}

// normalText returns one form of a text. libyang does not change the case of UUIDs, MAC
// addresses and physical addresses, writes IPv6 addresses with an embedded IPv4 address
// differently, and uses the machine's time zone.
func normalText(text string) string {
	if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return at.UTC().Format(time.RFC3339Nano)
	}
	for _, canonical := range []func(string) (string, bool){uuid, octets, ipv6Address, ipv6Prefix} {
		if out, ok := canonical(text); ok {
			return out
		}
	}
	return text
}
