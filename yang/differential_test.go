package yang

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// mutants is how many documents TestAgreesWithYanglint judges.
const mutants = 400

// TestAgreesWithYanglint breaks, or changes, valid documents in one place at a
// time, and compares this package's verdict with libyang's, and where both take
// the document, what they make of it.
func TestAgreesWithYanglint(t *testing.T) {
	lint := yanglint(t)
	schema := sample(t)
	random := rand.New(rand.NewPCG(20261121, 1))
	documents := validDocuments(t)
	dir := t.TempDir()

	accepted := 0
	files := make([]string, mutants)
	verdicts := make([]error, mutants)
	for i := range files {
		mutant, what := mutate(t, random, documents[i%len(documents)])
		files[i] = filepath.Join(dir, fmt.Sprintf("%d-%s.json", i, what))
		require.NoError(t, os.WriteFile(files[i], mutant, 0o600))
		verdicts[i] = judge(t, schema, mutant)
		if verdicts[i] == nil {
			accepted++
		}
	}
	require.Greater(t, accepted, mutants/10, "too few mutants are right to prove anything")
	require.Less(t, accepted, mutants*9/10, "too few mutants are wrong to prove anything")

	args := slices.Concat([]string{"-t", "data", "-f", "json", "-p", "."}, lintModules(t, schema))
	for i, answer := range lintAll(t, lint, args, files) {
		document, err := os.ReadFile(files[i])
		require.NoError(t, err)
		name := filepath.Base(files[i])
		switch {
		case stricter(verdicts[i]):
		case (verdicts[i] == nil) != (answer.err == nil):
			t.Errorf("%s\nours: %v\nyanglint: %v %s\n%s", name, verdicts[i], answer.err, answer.text, document)
		case verdicts[i] == nil:
			ours := encoded(decoded(t, schema, "", string(document)))
			require.Equal(t, normal(t, answer.text), normal(t, []byte(ours)), name)
		}
	}
}

// stricter reports whether an error is one that libyang doesn't see by design:
// to it, what is below an unkeyed list is state, where values may repeat, and
// spaces around a quoted number are nothing.
func stricter(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "/ip-block/except[") && strings.HasSuffix(err.Error(), "is there twice: want it once") ||
		strings.Contains(err.Error(), `int64: "`) && strings.Contains(err.Error(), ` " is no value`))
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

// answer is what yanglint says to a file: the document or what is wrong.
type answer struct {
	text []byte
	err  error
}

// lintAll runs yanglint on each file, two at a time.
func lintAll(t *testing.T, lint string, args, files []string) []answer {
	t.Helper()
	answers := make([]answer, len(files))
	var workers sync.WaitGroup
	for worker := range 2 {
		workers.Go(func() {
			for i := worker; i < len(files); i += 2 {
				out, err := exec.CommandContext(t.Context(), lint, append(slices.Clone(args), files[i])...).CombinedOutput()
				answers[i] = answer{out, err}
			}
		})
	}
	workers.Wait()
	return answers
}

// lintModules are the files of all modules that have data, but for the library,
// whose data libyang asks of every document.
func lintModules(t *testing.T, s *Schema) []string {
	t.Helper()
	out := []string{"testdata/sample.yang", "iana-if-type.yang"}
	for _, m := range s.Modules {
		if (len(m.Top) > 0 || strings.HasPrefix(m.Name, "odl-")) && m.Name != "sample" && m.Name != "ietf-yang-library" {
			out = append(out, m.Name+".yang")
		}
	}
	return out
}

// place is a value somewhere in a document, and how to put another there; drop
// takes it away.
type place struct {
	value any
	name  string // of the member, empty for an element
	put   func(any)
	drop  func()
	// rename gives the member another name.
	rename func(string)
}

// mutate changes one place of a document, and says how.
func mutate(t *testing.T, random *rand.Rand, document []byte) (mutant []byte, what string) {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.UseNumber()
	var root any
	require.NoError(t, decoder.Decode(&root))
	places := collect(root, func(any) {})
	at := places[random.IntN(len(places))]
	names := make([]string, 0, len(mutations))
	for name := range mutations {
		names = append(names, name)
	}
	slices.Sort(names)
	for {
		what = names[random.IntN(len(names))]
		if mutations[what](random, at) {
			break
		}
	}
	out, err := json.Marshal(root)
	require.NoError(t, err)
	return out, what
}

// collect lists the places below value, in a stable order.
func collect(value any, put func(any)) []place {
	var out []place
	switch value := value.(type) {
	case map[string]any:
		names := make([]string, 0, len(value))
		for name := range value {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			set := func(v any) { value[name] = v }
			out = append(out, place{
				value: value[name], name: name, put: set,
				drop:   func() { delete(value, name) },
				rename: func(to string) { value[to] = value[name]; delete(value, name) },
			})
			out = append(out, collect(value[name], set)...)
		}
	case []any:
		for i := range value {
			set := func(v any) { value[i] = v }
			out = append(out, place{value: value[i], put: set, drop: func() { put(slices.Delete(slices.Clone(value), i, i+1)) }})
			out = append(out, collect(value[i], set)...)
		}
	}
	return out
}

// mutations change a place; they return false where they don't fit it.
var mutations = map[string]func(*rand.Rand, place) bool{
	"drop": func(_ *rand.Rand, at place) bool { at.drop(); return true },
	"other": func(random *rand.Rand, at place) bool {
		at.put(others[random.IntN(len(others))])
		return true
	},
	"text": func(random *rand.Rand, at place) bool {
		text, ok := at.value.(string)
		if ok {
			at.put(texts[random.IntN(len(texts))](text))
		}
		return ok
	},
	"number": func(random *rand.Rand, at place) bool {
		_, ok := at.value.(json.Number)
		if ok {
			at.put(json.Number(numbers[random.IntN(len(numbers))]))
		}
		return ok
	},
	"quote": func(_ *rand.Rand, at place) bool {
		number, ok := at.value.(json.Number)
		if ok {
			at.put(number.String())
		}
		return ok
	},
	"rename": func(_ *rand.Rand, at place) bool {
		if at.rename == nil {
			return false
		}
		at.rename(at.name + "x")
		return true
	},
	"prefix": func(random *rand.Rand, at place) bool {
		if at.rename == nil {
			return false
		}
		_, local := cutPrefix(at.name)
		at.rename([]string{"", "pod:", "sample:", "elan:", "none:"}[random.IntN(5)] + local)
		return true
	},
	"double": func(_ *rand.Rand, at place) bool {
		list, ok := at.value.([]any)
		if ok && len(list) > 0 {
			at.put(append(slices.Clone(list), list[0]))
		}
		return ok
	},
	"reverse": func(_ *rand.Rand, at place) bool {
		list, ok := at.value.([]any)
		if ok {
			reversed := slices.Clone(list)
			slices.Reverse(reversed)
			at.put(reversed)
		}
		return ok
	},
	"add": func(random *rand.Rand, at place) bool {
		object, ok := at.value.(map[string]any)
		if ok {
			names := []string{"rail", "plane", "balloon", "name", "uid", "deny", "extra", "tags"}
			object[names[random.IntN(len(names))]] = others[random.IntN(len(others))]
		}
		return ok
	},
}

var others = []any{
	"", "x", "one", "a", "10.0.0.1", "::1", "10.0.0.0/8", "ac092d9b-e9eb-bae2-eed8-74aca2b7fa9c", "l2vlan",
	json.Number("0"), json.Number("1"), json.Number("-1"), json.Number("70000"), true, false,
	[]any{}, []any{"x"}, map[string]any{}, []any{map[string]any{}}, []any{nil},
}

var numbers = []string{
	"0", "1", "-1", "127", "128", "-128", "-129", "255", "256", "4095", "4096", "32767", "32768", "65535", "65536",
	"2147483647", "2147483648", "-2147483648", "-2147483649", "4294967295", "4294967296", "9", "10", "-5", "-6",
}

var texts = []func(string) string{
	strings.ToUpper,
	strings.ToLower,
	func(s string) string { return s + "x" },
	func(s string) string { return "0" + s },
	func(s string) string { return s + s },
	func(s string) string { return s + " " },
	func(s string) string { return s[:len(s)/2] },
	func(s string) string { return strings.Repeat(s, 40) },
	func(s string) string { return strings.ReplaceAll(s, ":", "::") },
	func(s string) string { return strings.ReplaceAll(s, ".", "") },
	func(s string) string { return strings.ReplaceAll(s, "0", "00") },
	func(s string) string { return s + "é" },
}
