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

// severalMutants is how many of the JSON documents are changed in several places.
const severalMutants = 1500

// leastMutants is how many documents are judged at least.
const leastMutants = 5000

// mutantsOf are changed documents of sample: each place in every way, then several at
// random places, always the same.
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

// mutants are made once for all tests.
var mutants struct {
	once sync.Once
	made []mutant
}

// TestAgreesWithYanglint breaks, or changes, valid documents of all modules, and
// compares this package's verdict with libyang's, and where both take the document,
// what they make of it.
func TestAgreesWithYanglint(t *testing.T) {
	schema := sample(t)
	requireAgreement(t, schema, mutantsOf(t, schema), "json", schema.DecodeJSON)
}

// TestDamageAgreesWithYanglint damages valid documents, byte by byte.
func TestDamageAgreesWithYanglint(t *testing.T) {
	schema := sample(t)
	requireAgreement(t, schema, damaged(t), "json", schema.DecodeJSON)
}

// damagedDocuments is how many that are.
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

// marks are put into documents. A pair of surrogates is not among them: libyang knows
// none.
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
			t.Fatal("too many to look on")
		}
	}
	require.Greater(t, len(documents), leastMutants)
	require.Greater(t, accepted, len(documents)/20, "too few are right to prove anything")
	require.Less(t, accepted, len(documents)*19/20, "too few are wrong to prove anything")
	t.Logf("%d documents, %d of them right", len(documents), accepted)
}

// disagreement says how the two verdicts on a document differ; it is empty where they
// agree, or differ on purpose.
func disagreement(t *testing.T, got []*Data, ours error, theirs answer) string {
	t.Helper()
	switch {
	case ours != nil && (theirs.err != nil || deliberate(ours, differences)), misplacedKey(theirs.err):
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

// stateDefault is the one leaf of state data here that has a default, which libyang
// prints where it is absent, and false.
const stateDefault = "replay-support"

// normal reads a document and evens out what libyang does otherwise: it doesn't
// print empty objects and arrays, and see stateDefault and normalText.
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

// normalText is a text in one of the forms that it has: libyang leaves uuids, MAC and
// physical addresses in upper case, writes IPv6 addresses that hold one of IPv4
// otherwise, and times in the machine's zone.
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
