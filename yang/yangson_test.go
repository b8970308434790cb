package yang

import (
	"bytes"
	"context"
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/python"
)

// yangsonJudges validates documents with yangson, which shares no code with libyang. "" means
// valid; any other text is the error.
func yangsonJudges(t *testing.T, s *Schema, documents [][]byte) []string {
	t.Helper()
	if testing.Short() {
		t.Skip("needs yangson")
	}
	venv, err := python.Venv(t.Context(), t.Output(), "testdata/requirements.txt")
	require.NoError(t, err)
	modules := yangsonModules(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	verdicts := make([]string, len(documents))
	var workers sync.WaitGroup
	half := (len(documents) + 1) / 2
	for _, part := range [][2]int{{0, half}, {half, len(documents)}} {
		workers.Go(func() {
			var in, said bytes.Buffer
			// One model includes the data of the library itself, which it requires in every document.
			in.WriteString(yangLibrary(s, "") + "\n" + yangLibrary(s, "ietf-yang-library") + "\n")
			for _, document := range documents[part[0]:part[1]] {
				model := "1 "
				if bytes.Contains(document, []byte(`"ietf-yang-library:`)) {
					model = "0 "
				}
				in.WriteString(model + string(bytes.ReplaceAll(document, []byte("\n"), nil)) + "\n")
			}
			cmd := exec.CommandContext(ctx, filepath.Join(venv, "bin", "python"), "testdata/judge.py", modules)
			cmd.Env, cmd.Stdin, cmd.Stderr = python.Environ(), &in, &said
			out, err := cmd.Output()
			lines := strings.Split(string(out), "\n")
			if err != nil || len(lines) != part[1]-part[0]+1 {
				t.Errorf("yangson: %v, %d lines for %d documents: %s", err, len(lines), part[1]-part[0], said.String())
				return
			}
			copy(verdicts[part[0]:part[1]], lines)
		})
	}
	workers.Wait()
	require.False(t, t.Failed())
	return verdicts
}

// yangsonModules returns a folder with the modules, with one change: in a when statement,
// yangson compares an identity with its text in JSON, and does not resolve the prefix.
func yangsonModules(t *testing.T) string {
	t.Helper()
	sources, err := readSources()
	require.NoError(t, err)
	text, err := os.ReadFile("testdata/sample.yang")
	require.NoError(t, err)
	sources["sample.yang"] = string(text)
	dir := t.TempDir()
	asInJSON := strings.NewReplacer("'ianaift:l2vlan'", "'iana-if-type:l2vlan'", "'s:own-type'", "'sample:own-type'")
	for name, text := range sources {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(asInJSON.Replace(text)), 0o600))
	}
	return dir
}

// yangLibrary returns the list of modules in the form of RFC 7895, optionally without the data
// of one module.
func yangLibrary(s *Schema, without string) string {
	var modules []any
	for _, m := range s.Modules {
		conformance := "import"
		if m.Implemented && m.Name != without {
			conformance = "implement"
		}
		modules = append(modules, map[string]any{
			"name": m.Name, "revision": m.Revision, "namespace": m.Namespace, "conformance-type": conformance,
		})
	}
	state := map[string]any{"module-set-id": "all", "module": modules}
	text, _ := json.Marshal(map[string]any{"ietf-yang-library:modules-state": state}) // texts in maps always encode
	return string(text)
}

// yangsonMutants is the number of accepted documents that TestYangsonAgrees validates, and of
// refused documents.
const yangsonMutants = 500

// TestYangsonAgrees compares this package with yangson.
func TestYangsonAgrees(t *testing.T) {
	schema := sample(t)
	var taken, refused []mutant
	for _, m := range mutantsOf(t, schema) {
		if judge(t, schema, m.text) == nil {
			taken = append(taken, m)
		} else {
			refused = append(refused, m)
		}
	}
	random := rand.New(rand.NewPCG(20261121, 4))
	for _, kind := range [][]mutant{taken, refused} {
		random.Shuffle(len(kind), func(i, j int) { kind[i], kind[j] = kind[j], kind[i] })
	}
	mutants := slices.Concat(taken[:yangsonMutants], refused[:yangsonMutants])
	documents := make([][]byte, len(mutants))
	for i, m := range mutants {
		documents[i] = m.text
	}
	for i, theirs := range yangsonJudges(t, schema, documents) {
		ours := judge(t, schema, documents[i])
		if (ours == nil) == (theirs == "") || deliberate(ours, differences) || deliberate(ours, yangsonDifferences) {
			continue
		}
		t.Errorf("%s: ours: %v; yangson: %s\n%s", mutants[i].what, ours, theirs, documents[i])
	}
}

// yangsonDifferences lists documents that this package and libyang refuse, and yangson accepts.
// There is no document that only yangson refuses.
var yangsonDifferences = []difference{
	{"yangson takes the digits of all scripts",
		`{"sample:types":{"ids":[1],"uint64":"٥"}}`, regexp.MustCompile(`: "[٠-٩]+" is not a valid value: want an integer in .*, quoted`)},
	{"yangson takes digits in groups",
		`{"sample:types":{"ids":[1],"uint64":"1_0"}}`, regexp.MustCompile(`: "\d+(_\d+)+" is not a valid value: want an integer in .*, quoted`)},
	{"yangson does not require deprecated nodes",
		`{"ietf-yang-library:yang-library":{"content-id":"1"}}`, regexp.MustCompile(`^/ietf-yang-library:modules-state/module-set-id: .* missing`)},
	{"yangson takes prefixes with bits of the host for others than those without",
		`{"coe-agent:interfaces":{"interface":[{"pod-uid":"p","interface-uid":"i","route":[{"destination":"0.0.0.0/0"},{"destination":"1.2.3.4/0"}]}]}}`,
		regexp.MustCompile(`: the (entry with the key|value) "[^"]*/\d+" appears twice`)},
	{"yangson takes the last of two members with one name",
		`{"sample:types":{"ids":[1],"string":"a","string":"b"}}`, regexp.MustCompile(`: a member appears twice: "`)},
	{"yangson takes metadata of nothing",
		`{"@":[]}`, regexp.MustCompile(`no member "@" here`)},
	{"yangson looks for no characters that RFC 7950 section 9.4 leaves out",
		`{"sample:types":{"ids":[1],"string":"\u0001"}}`, regexp.MustCompile(`: ".*\\(x[01]|x7f|u(fff[ef]|fdd|fde)).*"…? is not a valid value: want`)},
}

func TestDifferencesFromYangson(t *testing.T) {
	schema := sample(t)
	var documents [][]byte
	for _, d := range yangsonDifferences {
		documents = append(documents, []byte(d.document))
	}
	for i, theirs := range yangsonJudges(t, schema, documents) {
		ours := judge(t, schema, documents[i])
		require.Error(t, ours)
		require.Regexp(t, yangsonDifferences[i].says, ours.Error())
		require.Empty(t, theirs, "remove it: yangson refuses it too")
	}
}
