package yang

import (
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// difference is a document that this package and another validator judge differently on purpose.
type difference struct {
	why      string
	document string
	says     *regexp.Regexp // our error, of this document and all others that it excuses
}

// differences lists all documents that this package refuses on purpose in strict mode, and
// libyang accepts.
var differences = []difference{
	{"no address of an interface has a zone in IPv4",
		`{"sample:types":{"ids":[1],"ipv4":"10.0.0.1%1"}}`, regexp.MustCompile(`: "[\d.]+%\w+" is not a valid value: want an IPv4`)},
	{"RFC 7951 section 6.1 has a number, RFC 7950 section 9.2.1 no exponent in it: yangson refuses it too",
		`{"sample:types":{"ids":[1],"uint8":1e1}}`, regexp.MustCompile(`: -?[\d.]+[eE][-+]?\d+ is not a valid value: want an integer`)},
	{"hexadecimal numbers are for defaults in modules alone, RFC 7950 section 9.2.1",
		`{"sample:types":{"ids":[1],"uint64":"0x1F"}}`, regexp.MustCompile(`: "[-+]?0[xX][0-9a-fA-F]+" is not a valid value: want an integer in .*, quoted`)},
	{"what is below a list of our extension unkeyed is configuration, not state where values may repeat",
		`{"k8s:k8s":{"network-policies":{"network-policy":[{"uuid":"` + uidA + `","network-policy-spec":{"ingress":[{"network-policy-ingress-rule":` +
			`{"from":[{"network-policy-peer":{"ip-block":{"cidr":"a","except":["b","b"]}}}]}}]}}]}}}`,
		regexp.MustCompile(`/ip-block/except\[.* appears twice: want it once$`)},
	{"a name that begins with a colon has an empty prefix",
		`{"sample:types":{"ids":[1],":string":"x"}}`, regexp.MustCompile(`: no member ":`)},
}

// isNoJSON reports whether the standard library also refuses a body for its syntax. libyang
// accepts some invalid JSON, such as text after an empty document.
func isNoJSON(ours error, document []byte) bool {
	var errs Errors
	return errors.As(ours, &errs) && errs[0].Tag == "malformed-message" && !json.Valid(document)
}

// deliberate reports whether all errors are in a list.
func deliberate(err error, list []difference) bool {
	var errs Errors
	if !errors.As(err, &errs) {
		return false
	}
	return !slices.ContainsFunc(errs, func(one *Error) bool {
		return !slices.ContainsFunc(list, func(d difference) bool { return d.says.MatchString(one.Error()) })
	})
}

func TestDifferencesFromYanglint(t *testing.T) {
	schema := sample(t)
	var documents [][]byte
	for _, d := range differences {
		documents = append(documents, []byte(d.document))
	}
	for i, theirs := range newLinter(t, schema).judge(t, documents, "json", "json") {
		t.Run(differences[i].why, func(t *testing.T) {
			ours := judge(t, schema, documents[i])
			require.Error(t, ours)
			require.Regexp(t, differences[i].says, ours.Error())
			require.NoError(t, theirs.err, "remove it: libyang refuses it too")
		})
	}
}

func TestLibyangReadsMoreThanJSON(t *testing.T) {
	schema := sample(t)
	var documents [][]byte
	for _, text := range []string{"\x00", `{}"x"`, `{"sample:types":{"ids":[1],"string":"\u12x4"}}`} {
		documents = append(documents, []byte(text))
	}
	for i, theirs := range newLinter(t, schema).judge(t, documents, "json", "json") {
		require.True(t, isNoJSON(judge(t, schema, documents[i]), documents[i]))
		require.NoError(t, theirs.err, "remove it: libyang refuses it too: %s", documents[i])
	}
}

// TestXMLTakesKeysInAnyPlace tests a document that this package accepts and libyang refuses:
// RFC 7950 section 7.8.5 requires an entry's keys first, which people who write XML by
// hand do not know.
func TestXMLTakesKeysInAnyPlace(t *testing.T) {
	schema := sample(t)
	document := []byte(`<wants` + sampleSpace + `><name>n</name><rail/><implied><deeper><must-be>x</must-be></deeper></implied>` +
		`<pair><values>v</values><b>1</b><a>x</a></pair></wants>`)
	_, err := judged(schema, schema.DecodeXML, document)
	require.NoError(t, err)
	theirs := newLinter(t, schema).judge(t, [][]byte{document}, "xml", "json")
	require.True(t, misplacedKey(theirs[0].err), "remove it: libyang takes it too")
}

// misplacedKey reports whether libyang refuses a document because a key is not first.
func misplacedKey(theirs error) bool {
	return theirs != nil && strings.Contains(theirs.Error(), "Invalid position of the key")
}

// TestOctalNumbers tests the only document that both accept with different results: libyang
// reads quoted numbers in JSON like numbers in C. It refuses those that are not octal.
func TestOctalNumbers(t *testing.T) {
	schema := sample(t)
	document := []byte(`{"sample:types":{"ids":[1],"uint64":"010"}}`)
	got, err := judged(schema, schema.DecodeJSON, document)
	require.NoError(t, err)
	require.Equal(t, "10", got[0].Leaf("uint64"))
	theirs := newLinter(t, schema).judge(t, [][]byte{document}, "json", "json")
	require.Contains(t, string(theirs[0].text), `"uint64": "8"`)
	document = []byte(`{"sample:types":{"ids":[1],"uint64":"09"}}`)
	require.NoError(t, judge(t, schema, document))
	theirs = newLinter(t, schema).judge(t, [][]byte{document}, "json", "json")
	require.True(t, notOctal(theirs[0].err), "remove it: libyang takes it too")
}

var invalidOctal = regexp.MustCompile(`Invalid type u?int64 value "[-+]?0\d+"`)

// notOctal reports whether libyang refuses a document because of a number that begins with 0.
func notOctal(theirs error) bool { return theirs != nil && invalidOctal.MatchString(theirs.Error()) }
