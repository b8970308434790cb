package yang

import (
	"errors"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// differences are all documents that this package refuses on purpose, in its strict
// mode, and libyang takes. There are none the other way round.
var differences = []struct {
	why      string
	document string
	says     *regexp.Regexp // our error, of this document and all others that it excuses
}{
	{"no address of an interface has a zone in IPv4",
		`{"sample:types":{"ids":[1],"ipv4":"10.0.0.1%1"}}`, regexp.MustCompile(`: "[\d.]+%\w+" is no value for it: want an IPv4`)},
	{"RFC 7951 section 6.1 has a number, RFC 7950 section 9.2.1 no exponent in it: yangson refuses it too",
		`{"sample:types":{"ids":[1],"uint8":1e1}}`, regexp.MustCompile(`: -?[\d.]+[eE][-+]?\d+ is no value for it: want an integer`)},
	{"a number has no spaces around it in JSON",
		`{"sample:types":{"ids":[1],"uint64":" 5"}}`, regexp.MustCompile(`: "(?:(?: |\\n)[-\d]+|[-\d]+(?: |\\n))" is no value for it: want an integer in .*, quoted`)},
	{"what is below a list of our extension unkeyed is configuration, not state where values may repeat",
		`{"k8s:k8s":{"network-policies":{"network-policy":[{"uuid":"` + uidA + `","network-policy-spec":{"ingress":[{"network-policy-ingress-rule":` +
			`{"from":[{"network-policy-peer":{"ip-block":{"cidr":"a","except":["b","b"]}}}]}}]}}]}}}`,
		regexp.MustCompile(`/ip-block/except\[.* is there twice: want it once$`)},
	{"a name that begins with a colon has an empty prefix",
		`{"sample:types":{"ids":[1],":string":"x"}}`, regexp.MustCompile(`: no member ":`)},
}

// deliberate reports whether all that is wrong is in differences.
func deliberate(err error) bool {
	var errs Errors
	if !errors.As(err, &errs) {
		return false
	}
	for _, one := range errs {
		known := false
		for _, d := range differences {
			known = known || d.says.MatchString(one.Error())
		}
		if !known {
			return false
		}
	}
	return true
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
			require.NoError(t, theirs.err, "take it out: libyang refuses it too")
		})
	}
}
