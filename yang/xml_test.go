package yang

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// encodedXML returns siblings in XML.
func encodedXML(siblings []*Data) string {
	var out bytes.Buffer
	EncodeXML(&out, siblings)
	return out.String()
}

// decodeXMLIn is decodeIn for XML.
func decodeXMLIn(t testing.TB, s *Schema, in, body string, mode Mode) ([]*Data, error) {
	t.Helper()
	var parent *Node
	if in != "" {
		parent = find(t, s, strings.TrimPrefix(in, "/"))
	}
	return s.DecodeXML([]byte(body), parent, in, mode)
}

func requireSameInXML(t *testing.T, s *Schema, in string, data []*Data) {
	t.Helper()
	if len(data) == 0 {
		return
	}
	text := encodedXML(data)
	again, err := decodeXMLIn(t, s, in, text, Strict)
	require.NoError(t, err, text)
	require.Equal(t, encoded(data), encoded(again))
	require.Equal(t, text, encodedXML(again))
}

// TestXMLRoundTrip encodes the data of all fixtures as XML and decodes it.
func TestXMLRoundTrip(t *testing.T) {
	schema := sample(t)
	for _, document := range validDocuments(t) {
		requireSameInXML(t, schema, "", decoded(t, schema, "", string(document)))
	}
	for _, one := range exchanges(t) {
		if data, err := decodeIn(t, schema, one.In, one.Body, Lenient); err == nil {
			requireSameInXML(t, schema, one.In, data)
		}
	}
	for file, in := range map[string]string{
		"spec-pool.json": "/dhcp_allocation_pool:dhcp_allocation_pool", "spec-pod.json": "/pod:coe", "spec-service.json": "",
	} {
		body, err := os.ReadFile("testdata/" + file)
		require.NoError(t, err)
		data, err := decodeIn(t, schema, in, string(body), Lenient)
		require.NoError(t, err)
		requireSameInXML(t, schema, in, data)
	}
	requireSameInXML(t, schema, "/sample:types", decoded(t, schema, "/sample:types", `{"string":" <a href='x'>&amp;\r\n\t]]>\"é😀"}`))
}

const (
	podSpace    = ` xmlns="urn:opendaylight:coe:northbound:pod"`
	sampleSpace = ` xmlns="urn:coe-bridge:test:sample"`
)

func TestDecodeXML(t *testing.T) {
	schema := sample(t)
	for _, test := range []struct {
		name, in, body string
		mode           Mode
		want           string
	}{
		{"prolog, comments and spaces", "/pod:coe", `<?xml version="1.0" encoding="UTF-8"?><!-- a --> <pods` + podSpace + `>
			<name>a<!-- b -->b</name> <uid>` + uidA + `</uid></pods> `, Strict, `{"pod:pods":[{"uid":"` + uidA + `","name":"ab"}]}`},
		{"prefix", "/pod:coe", `<p:pods xmlns:p="urn:opendaylight:coe:northbound:pod"><p:uid>` + uidA + `</p:uid></p:pods>`, Strict,
			`{"pod:pods":[{"uid":"` + uidA + `"}]}`},
		{"CDATA and entities", "/sample:types", `<string` + sampleSpace + `><![CDATA[<a>]]>&lt;&#65;&apos;</string>`, Strict, `{"sample:string":"<a><A'"}`},
		{"entries apart", "/sample:types", `<ids` + sampleSpace + `>1</ids><uint8` + sampleSpace + `>016</uint8><ids` + sampleSpace + `>2</ids>`, Strict,
			`{"sample:uint8":16,"sample:ids":[1,2]}`},
		{"identity by default namespace", "/sample:types", `<identity` + sampleSpace + `>leaf-id</identity>`, Strict, `{"sample:identity":"sample:leaf-id"}`},
		{"identity by outer prefix", "", `<s:types xmlns:s="urn:coe-bridge:test:sample"><s:identity>s:middle</s:identity></s:types>`, Strict,
			`{"sample:types":{"identity":"sample:middle"}}`},
		{"identity, lenient", "/sample:types", `<identity>leaf-id</identity>`, Lenient, `{"sample:identity":"sample:leaf-id"}`},
		{"no namespace, lenient", "/pod:coe", `<pods><uid>` + uidA + `</uid><host-ip-address/></pods>`, Lenient, `{"pod:pods":[{"uid":"` + uidA + `"}]}`},
		{"empty", "/sample:types", `<empty` + sampleSpace + `/>`, Strict, `{"sample:empty":[null]}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := decodeXMLIn(t, schema, test.in, test.body, test.mode)
			require.NoError(t, err)
			require.Equal(t, test.want, encoded(got))
		})
	}
}

// TestDecodeXMLErrors makes each mistake in both encodings, if JSON can have it: the errors are
// equal.
func TestDecodeXMLErrors(t *testing.T) {
	schema := sample(t)
	pod := func(rest string) string { return `<pods` + podSpace + `><uid>` + uidA + `</uid>` + rest + `</pods>` }
	jsonPod := func(rest string) string { return `{"pods":[{"uid":"` + uidA + `",` + rest + `}]}` }
	at := "/pod:coe/pods[uid='" + uidA + "']"
	for _, test := range []struct{ name, in, body, json, tag, path string }{
		{"value", "/pod:coe", pod(`<host-ip-address>192.168</host-ip-address>`), jsonPod(`"host-ip-address":"192.168"`), "invalid-value", at + "/host-ip-address"},
		{"unknown", "/pod:coe", pod(`<nam><a/></nam>`), jsonPod(`"nam":{"a":{}}`), "unknown-element", at},
		{"unknown of another module", "/pod:coe", pod(`<coe xmlns="urn:coe-bridge:test:sample"/>`), jsonPod(`"sample:coe":1`), "unknown-element", at},
		{"no key", "/pod:coe", pod(`<interface/><interface/>`), jsonPod(`"interface":[{},{}]`), "missing-element", at + "/interface[1]"},
		{"same key", "/pod:coe", pod("") + pod(""), `{"pods":[{"uid":"` + uidA + `"},{"uid":"` + uidA + `"}]}`, "bad-element", at},
		{"same value", "/sample:types", `<ids` + sampleSpace + `>1</ids><ids` + sampleSpace + `>1</ids>`, `{"ids":[1,1]}`, "bad-element", "/sample:types/ids[.='1']"},
		{"two cases", "/sample:wants", `<plane` + sampleSpace + `/><road` + sampleSpace + `/>`, `{"plane":"","road":""}`, "bad-element", ""},
		{"identity without prefix declared", "/sample:types", `<identity` + sampleSpace + `>sample:leaf-id</identity>`, "", "invalid-value", "/sample:types/identity"},
		{"text in a list", "/pod:coe", `<pods` + podSpace + `>x</pods>`, "", "invalid-value", "/pod:coe/pods"},
		{"elements in a leaf", "/pod:coe", pod(`<name><b>x</b></name>`), "", "invalid-value", at + "/name"},
		{"attribute", "/pod:coe", `<pods` + podSpace + ` operation="delete"><uid>` + uidA + `</uid></pods>`, "", "unknown-attribute", "/pod:coe"},
		{"no namespace", "/pod:coe", `<pods><uid>` + uidA + `</uid></pods>`, "", "unknown-namespace", "/pod:coe"},
		{"leaf twice", "/pod:coe", pod(`<name>a</name><name>b</name>`), "", "malformed-message", ""},
		{"nothing", "/pod:coe", ``, "", "malformed-message", ""},
		{"text outside", "/pod:coe", pod("") + `x`, "", "malformed-message", ""},
		{"cut", "/pod:coe", `<pods` + podSpace + `><uid>`, "", "malformed-message", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := decodeXMLIn(t, schema, test.in, test.body, Strict)
			require.Nil(t, got)
			var errs Errors
			require.ErrorAs(t, err, &errs)
			require.Equal(t, test.tag, errs[0].Tag, "%v", err)
			if test.json == "" {
				require.Equal(t, test.path, errs[0].Path, "%v", err)
				return
			}
			_, same := decodeIn(t, schema, test.in, test.json, Strict)
			require.Equal(t, same, err)
			require.Contains(t, errs[0].Path, test.path)
		})
	}
}

type hostileBody struct{ name, body, says string }

// hostile lists bodies that would make a careless decoder use the network, files, or all
// memory.
func hostile() []hostileBody {
	return []hostileBody{
		{"entity expansion", `<!DOCTYPE a [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]><pods` + podSpace + `><name>&b;</name></pods>`, "refused"},
		{"external entity", `<!DOCTYPE a [<!ENTITY a SYSTEM "file:///etc/passwd">]><pods` + podSpace + `><name>&a;</name></pods>`, "refused"},
		{"external document type", `<!DOCTYPE a SYSTEM "http://127.0.0.1/a.dtd"><pods` + podSpace + `/>`, "refused"},
		{"undeclared entity", `<pods` + podSpace + `><name>&a;</name></pods>`, "entity"},
		{"directive within", `<pods` + podSpace + `><!ELEMENT a ANY></pods>`, "refused"},
		{"namespaces without number", `<pods` + podSpace + strings.Repeat(` xmlns:a="b"`, maxScopes) + `/>`, "namespaces"},
		{"deep nesting", `<pods` + podSpace + `><x>` + strings.Repeat(`<a>`, maxDepth+1), "nested deeper"},
	}
}

func TestDecodeXMLRefusesHostileBodies(t *testing.T) {
	schema := sample(t)
	for _, test := range hostile() {
		t.Run(test.name, func(t *testing.T) {
			for _, mode := range []Mode{Strict, Lenient} {
				got, err := decodeXMLIn(t, schema, "/pod:coe", test.body, mode)
				require.Nil(t, got)
				require.ErrorContains(t, err, test.says)
			}
		})
	}
}
