package xpath

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/yang"
)

const changed = `{"operation":"put","target":"/pod:coe/pods=1","value":{"pod:coe":{"pods":[` +
	`{"uid":"1","name":"web","network-NS":"default","interface":[{"uid":"a","segmentation-id":7},{"uid":"b","segmentation-id":70}]},` +
	`{"uid":"2","name":"db"}]}}}`

func notification(t testing.TB) (*yang.Schema, *yang.Data) {
	t.Helper()
	schema, err := yang.Load()
	require.NoError(t, err)
	d, err := yang.DecodeObject([]byte(changed), schema.Notification("coe-changes:entry-changed"))
	require.NoError(t, err)
	return schema, d
}

func TestConditions(t *testing.T) {
	schema, d := notification(t)
	const pods = "/entry-changed/value/coe/pods"
	for text, want := range map[string]bool{
		"/":                              true,
		"/coe-changes:entry-changed":     true,
		"/coe-changes:snapshot-begin":    false,
		"/pod:entry-changed":             false,
		"entry-changed":                  true,
		"/*/operation='put'":             true,
		"/*/operation != 'put'":          false,
		`/*/operation="deleted"`:         false,
		"/entry-changed/value/pod:coe":   true,
		"/entry-changed/value/pod:*":     true,
		"/entry-changed/value/service:*": false,
		pods + "/name='db'":              true,
		pods + "/name!='db'":             true,
		pods + "/name='none'":            false,
		pods + "[name='db']/uid=2":       true,
		pods + "[name='db']/uid='1'":     false,
		pods + "[name='web' and network-NS='default'][interface/segmentation-id > 60]": true,
		pods + "[name='db' and network-NS='default']":                                  false,
		pods + "[interface[uid='a']/segmentation-id=70]":                               false,
		pods + "[interface[uid='b']/segmentation-id=70.0]":                             true,
		pods + "/interface/segmentation-id<7":                                          false,
		pods + "/interface/segmentation-id<=7":                                         true,
		pods + "/interface/segmentation-id>=71":                                        false,
		pods + "/name > 1":                                                             false,
		pods + "[.='x']":                                                               false,
		pods + "/name[.='web']":                                                        true,
		"count(" + pods + ")=2":                                                        true,
		"count(" + pods + "/interface) > 2":                                            false,
		"contains(/*/target, 'coe/pods')":                                              true,
		"starts-with(/*/target,'/pod')":                                                true,
		"starts-with(/*/target,'/service')":                                            false,
		"not(/*/operation='put')":                                                      false,
		"not(/none) and (true() or /x)":                                                true,
		"false() or false()":                                                           false,
		"/snapshot-begin|/entry-changed":                                               true,
		"/a|/b | /c":                                                                   false,
		"/*/operation='put'or/*/operation='deleted'":                                   true,
		"true() = /entry-changed":                                                      true,
		"/none = false()":                                                              true,
		"'x'":                                                                          true,
		"''":                                                                           false,
		"0":                                                                            false,
		"-1.5 < -.5":                                                                   true,
		"'a' = 'a'":                                                                    true,
		"contains('abc', 'b')":                                                         true,
		"contains(1.5, '.')":                                                           true,
		"contains(/none, '')":                                                          true,
		"contains(true(), 'tru')":                                                      true,
		"contains(false(), 'als')":                                                     true,
		"./entry-changed/./operation":                                                  true,
		" /entry-changed [ operation = 'put' ] ":                                       true,
		"/entry-changed[value/coe]/operation[.='put']":                                 true,
	} {
		c, err := Parse(schema, text)
		require.NoError(t, err, text)
		require.Equal(t, want, c.Holds(d), text)
	}
}

func TestRefusals(t *testing.T) {
	schema, _ := notification(t)
	for text, says := range map[string]string{
		"":                        "too early",
		"/a[":                     "too early",
		"/a]":                     "after its end",
		"/a b":                    "after its end",
		"//a":                     "want a name",
		"/a//b":                   "after its end",
		"/a/..":                   "want a name",
		"/a/@b":                   "want a name",
		"child::a":                "after its end",
		"$x":                      "want a name",
		"/a[1]":                   "position",
		"/a[count(b)]":            "position",
		"/a[/b]":                  "root",
		"/a = /b":                 "two paths",
		"/a | 'b'":                "must be paths",
		"'a' | /b":                "must be paths",
		"count('a')":              "of a path",
		"contains(/a)":            `want ","`,
		"not(/a, /b)":             `want ")"`,
		"position()":              "no function",
		"nowhere:a":               "no module",
		"/a and":                  "too early",
		"(/a":                     `want ")"`,
		"#":                       "can't be read",
		"'a":                      "can't be read",
		"1 +":                     "after its end",
		strings.Repeat("x", 4097): "longer",
		strings.Repeat("(", 33) + "/a" + strings.Repeat(")", 33): "nested",
		strings.Repeat("a[", 33):                                 "nested",
	} {
		_, err := Parse(schema, text)
		require.ErrorContains(t, err, says, text)
	}
}

// No condition takes long, whatever it says: the fuzzing engine stops an input after 10 s.
func FuzzParse(f *testing.F) {
	schema, d := notification(f)
	for _, seed := range []string{"/*/*[*[*]]|/*", "not(contains(/a,'b')) and count(/a[b='c' or d<=-1.5])!=2", "/pod:*[.='x']/.", "((('"} {
		f.Add(seed)
	}
	f.Fuzz(func(_ *testing.T, text string) {
		c, err := Parse(schema, text)
		if err != nil {
			return
		}
		c.Holds(d)
	})
}

func BenchmarkHolds(b *testing.B) {
	schema, d := notification(b)
	c, err := Parse(schema, "/entry-changed[operation='put' and value/coe/pods[contains(name,'e')]/network-NS='default']")
	require.NoError(b, err)
	for b.Loop() {
		c.Holds(d)
	}
}
