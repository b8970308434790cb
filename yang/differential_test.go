package yang

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// severalMutants is how many of the documents that TestAgreesWithYanglint judges are
// changed in several places.
const severalMutants = 2000

// mutantsOf are changed documents: each place in every way, then several at random
// places, always the same.
func mutantsOf(t testing.TB, s *Schema, several int) []mutant {
	t.Helper()
	documents := validDocuments(t)
	m := newMutator(t, s, documents)
	random := rand.New(rand.NewPCG(20261121, 1))
	var out []mutant
	for _, document := range documents {
		out = append(out, m.each(t, random, document)...)
	}
	for i := range several {
		out = append(out, m.several(t, random, documents[i%len(documents)]))
	}
	return out
}

// TestAgreesWithYanglint breaks, or changes, valid documents of all modules, and
// compares this package's verdict with libyang's, and where both take the document,
// what they make of it.
func TestAgreesWithYanglint(t *testing.T) {
	schema := sample(t)
	linter := newLinter(t, schema)
	mutants := mutantsOf(t, schema, severalMutants)
	texts := make([][]byte, len(mutants))
	for i, m := range mutants {
		texts[i] = m.text
	}
	accepted, differ := 0, 0
	for i, answer := range linter.judge(t, texts, "json", "json") {
		verdict := judge(t, schema, texts[i])
		if verdict == nil {
			accepted++
		}
		if (verdict == nil) != (answer.err == nil) {
			differ++
			fmt.Printf("DIFF %s\n   ours: %v\n   lint: %v\n", mutants[i].what, verdict, answer.err)
			continue
		}
		if verdict == nil {
			ours := encoded(decoded(t, schema, "", string(texts[i])))
			if fmt.Sprint(normal(t, answer.text)) != fmt.Sprint(normal(t, []byte(ours))) {
				fmt.Printf("VALUE %s\n   ours: %v\n   lint: %v\n", mutants[i].what, normal(t, []byte(ours)), normal(t, answer.text))
			}
		}
	}
	fmt.Println("SUM", len(mutants), accepted, differ)
}

// normal reads a document and evens out what libyang does otherwise: it doesn't
// print empty objects and arrays, and leaves uuids and MAC addresses in upper case.
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
			if member = prune(member); member != nil {
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
		for _, known := range []func(string) (string, bool){uuid, macAddress} {
			if canonical, ok := known(value); ok {
				return canonical
			}
		}
	}
	return value
}
var _ = strings.Cut
