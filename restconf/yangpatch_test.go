package restconf

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/restconf/wire"
	"github.com/coe-bridge/coe-bridge/yang"
)

// testEdit is an edit of a patch, in either encoding.
type testEdit struct {
	id, operation, target, where, point string
	value                               [2]string // in JSON and in XML
}

func value(json, xml string) [2]string { return [2]string{json, xml} }

func podValue(uid string) [2]string { return value(podRFC(uid), podXML(uid)) }

func patchBody(inXML bool, edits ...testEdit) string {
	if !inXML {
		list := []map[string]any{}
		for _, e := range edits {
			one := map[string]any{}
			for name, text := range map[string]string{"edit-id": e.id, "operation": e.operation, "target": e.target, "where": e.where, "point": e.point} {
				if text != "" {
					one[name] = text
				}
			}
			if e.value[0] != "" {
				one["value"] = json.RawMessage(e.value[0])
			}
			list = append(list, one)
		}
		body, _ := json.Marshal(map[string]any{"ietf-yang-patch:yang-patch": map[string]any{"patch-id": "p", "edit": list}})
		return string(body)
	}
	var b strings.Builder
	b.WriteString(`<yang-patch xmlns="` + wire.PatchSpace + `"><patch-id>p</patch-id>`)
	for _, e := range edits {
		b.WriteString("<edit>")
		for _, leaf := range [][2]string{{"edit-id", e.id}, {"operation", e.operation}, {"target", e.target}, {"point", e.point}, {"where", e.where}} {
			if leaf[1] != "" {
				fmt.Fprintf(&b, "<%s>%s</%s>", leaf[0], leaf[1], leaf[0])
			}
		}
		if e.value[1] != "" {
			b.WriteString("<value>" + e.value[1] + "</value>")
		}
		b.WriteString("</edit>")
	}
	return b.String() + "</yang-patch>"
}

// patchAnswer is a status that was read.
type patchAnswer struct {
	status int
	id     string
	ok     bool
	global []string            // error-tags
	edits  map[string][]string // error-tags by edit-id
	paths  []string
}

func (b *bed) patch(path string, inXML bool, body string, options ...option) patchAnswer {
	b.t.Helper()
	kind := "json"
	if inXML {
		kind = "xml"
	}
	got := b.do("PATCH", path, body, append([]option{header("Content-Type", "application/yang-patch+"+kind)}, options...)...)
	require.Equal(b.t, "application/yang-data+"+kind, got.header.Get("Content-Type"), got.body)
	judged(b.t, kind, got.body)
	out := patchAnswer{status: got.status, edits: map[string][]string{}}
	var status struct {
		ID     string          `json:"patch-id" xml:"patch-id"`
		OK     *[]any          `json:"ok" xml:"-"`
		OKXML  *struct{}       `json:"-" xml:"ok"`
		Errors *wire.ErrorList `json:"errors" xml:"errors"`
		Edits  struct {
			Edits []wire.EditStatus `json:"edit" xml:"edit"`
		} `json:"edit-status" xml:"edit-status"`
	}
	if inXML {
		require.NoError(b.t, xml.Unmarshal([]byte(got.body), &status), got.body)
	} else {
		var wrapped map[string]json.RawMessage
		require.NoError(b.t, json.Unmarshal([]byte(got.body), &wrapped), got.body)
		require.NoError(b.t, json.Unmarshal(wrapped["ietf-yang-patch:yang-patch-status"], &status), got.body)
	}
	out.id, out.ok = status.ID, status.OK != nil || status.OKXML != nil
	if status.Errors != nil {
		for _, e := range status.Errors.Errors {
			out.global, out.paths = append(out.global, e.Tag), append(out.paths, e.Path)
		}
	}
	for _, e := range status.Edits.Edits {
		for _, one := range e.Errors.Errors {
			out.edits[e.ID], out.paths = append(out.edits[e.ID], one.Tag), append(out.paths, one.Path)
		}
	}
	return out
}

// Every operation, on what is there and on what isn't.
func TestYANGPatchOperations(t *testing.T) {
	name := value(`{"pod:name":"new"}`, `<name`+podSpace+`>new</name>`)
	merged := value(`{"pod:pods":[{"uid":"`+uid1+`","network-NS":"web"}]}`, `<pods`+podSpace+`><uid>`+uid1+`</uid><network-NS>web</network-NS></pods>`)
	whole := value(`{"pod:coe":`+podRFC(uid3)+`}`, `<coe`+podSpace+`>`+podXML(uid3)+`</coe>`)
	for _, c := range []struct {
		name   string
		at     string
		edit   testEdit
		status int
		tag    string // of the edit's error
		has    string // afterwards in the container
		hasNot string
	}{
		{"create", coeRFC, testEdit{operation: "create", target: "/pods=" + uid2, value: podValue(uid2)}, 200, "", uid2, ""},
		{"create what is there", coeRFC, testEdit{operation: "create", target: "/pods=" + uid1, value: podValue(uid1)}, 409, "data-exists", "", ""},
		{"create a container that is there", coeRFC, testEdit{operation: "create", target: "/", value: whole}, 409, "data-exists", "", uid3},
		{"delete", coeRFC, testEdit{operation: "delete", target: "/pods=" + uid1}, 200, "", "", uid1},
		{"delete what is not there", coeRFC, testEdit{operation: "delete", target: "/pods=" + uid2}, 409, "data-missing", uid1, ""},
		{"remove", coeRFC, testEdit{operation: "remove", target: "/pods=" + uid1}, 200, "", "", uid1},
		{"remove what is not there", coeRFC, testEdit{operation: "remove", target: "/pods=" + uid2}, 200, "", uid1, ""},
		{"merge", coeRFC, testEdit{operation: "merge", target: "/pods=" + uid1, value: merged}, 200, "", `"name":"x"`, ""},
		{"merge what is not there", coeRFC, testEdit{operation: "merge", target: "/pods=" + uid2, value: podValue(uid2)}, 200, "", uid2, ""},
		{"replace", coeRFC, testEdit{operation: "replace", target: "/pods=" + uid1, value: merged}, 200, "", "web", `"name":"x"`},
		{"replace what is not there", coeRFC, testEdit{operation: "replace", target: "/pods=" + uid2, value: podValue(uid2)}, 200, "", uid2, ""},
		{"replace the target itself", coeRFC, testEdit{operation: "replace", target: "/", value: whole}, 200, "", uid3, uid1},
		{"a leaf", podsRFC + uid1, testEdit{operation: "replace", target: "/name", value: name}, 200, "", `"name":"new"`, ""},
		{"below the datastore", "/rests/data", testEdit{operation: "replace", target: "/pod:coe/pods=" + uid1 + "/name", value: name}, 200, "", `"name":"new"`, ""},
		{"in what is not there", coeRFC, testEdit{operation: "create", target: "/pods=" + uid2 + "/name", value: name}, 409, "data-missing", "", ""},
		{"the key", coeRFC, testEdit{operation: "delete", target: "/pods=" + uid1 + "/uid"}, 400, "invalid-value", uid1, ""},
		{"another key in the value", coeRFC, testEdit{operation: "create", target: "/pods=" + uid2, value: podValue(uid3)}, 400, "invalid-value", "", uid3},
		{"another node in the value", coeRFC, testEdit{operation: "create", target: "/pods=" + uid2, value: name}, 400, "malformed-message", "", uid2},
		{"a whole list", coeRFC, testEdit{operation: "delete", target: "/pods"}, 405, "operation-not-supported", uid1, ""},
		{"the datastore", "/rests/data", testEdit{operation: "delete", target: "/"}, 400, "invalid-value", uid1, ""},
		{"a read-only tree", "/rests/data", testEdit{operation: "delete", target: "/elan:elan-instances"}, 405, "operation-not-supported", uid1, ""},
		{"no such node", coeRFC, testEdit{operation: "delete", target: "/nodes"}, 400, "invalid-value", uid1, ""},
		{"no such operation", coeRFC, testEdit{operation: "destroy", target: "/"}, 400, "invalid-value", uid1, ""},
		{"no operation", coeRFC, testEdit{target: "/"}, 400, "invalid-value", uid1, ""},
		{"no target", coeRFC, testEdit{operation: "delete"}, 400, "missing-element", uid1, ""},
		{"no value", coeRFC, testEdit{operation: "create", target: "/pods=" + uid2}, 400, "missing-element", uid1, ""},
		{"a value too many", coeRFC, testEdit{operation: "delete", target: "/pods=" + uid1, value: name}, 400, "unknown-element", uid1, ""},
		{"a place too many", coeRFC, testEdit{operation: "delete", target: "/pods=" + uid1, where: "first"}, 400, "unknown-element", uid1, ""},
		{"an order that nobody gives", coeRFC, testEdit{operation: "move", target: "/pods=" + uid1, where: "first"}, 400, "invalid-value", uid1, ""},
	} {
		for _, inXML := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s xml=%t", c.name, inXML), func(t *testing.T) {
				b := newBed(t)
				require.Equal(t, 201, b.do("PUT", podsRFC+uid1, podRFC(uid1)).status)
				c.edit.id = "one"
				got := b.patch(c.at, inXML, patchBody(inXML, c.edit))
				require.Equal(t, c.status, got.status, got)
				require.Equal(t, "p", got.id)
				require.Equal(t, c.status == 200, got.ok)
				if c.tag != "" {
					require.Equal(t, map[string][]string{"one": {c.tag}}, got.edits)
				}
				after := b.do("GET", coeRFC, "").body
				require.Contains(t, after, c.has)
				if c.hasNot != "" {
					require.NotContains(t, after, c.hasNot)
				}
			})
		}
	}
}

// All edits are made, in their order, or none; only what comes out has to be valid.
func TestYANGPatchIsAtomic(t *testing.T) {
	for _, inXML := range []bool{false, true} {
		b := newBed(t)
		create := func(id, uid string) testEdit {
			return testEdit{id: id, operation: "create", target: "/pods=" + uid, value: podValue(uid)}
		}
		failed := b.patch("/rests/data", inXML, patchBody(inXML,
			testEdit{id: "1", operation: "create", target: "/pod:coe/pods=" + uid1, value: podValue(uid1)},
			testEdit{id: "2", operation: "delete", target: "/pod:coe/pods=" + uid2}))
		require.Equal(t, map[string][]string{"2": {"data-missing"}}, failed.edits)
		require.Equal(t, 404, b.do("GET", coeRFC, "").status)

		require.Equal(t, 201, b.do("PUT", coeRFC, `{"pod:coe":{}}`).status)
		wrong := b.patch(coeRFC, inXML, patchBody(inXML, create("1", uid1),
			testEdit{id: "2", operation: "no"}, testEdit{id: "3", operation: "delete", target: "/x"}))
		require.Len(t, wrong.edits, 2, "all malformed edits are reported")

		made := b.patch(coeRFC, inXML, patchBody(inXML, create("1", uid1), create("2", uid2),
			testEdit{id: "3", operation: "delete", target: "/pods=" + uid1}, create("4", uid3),
			testEdit{id: "5", operation: "replace", target: "/pods=" + uid2 + "/name", value: value(`{"pod:name":"n"}`, `<name`+podSpace+`>n</name>`)}))
		require.Equal(t, 200, made.status, made)
		after := b.do("GET", coeRFC, "").body
		require.NotContains(t, after, uid1)
		require.Contains(t, after, uid3)
		require.Contains(t, after, `"name":"n"`)

		again := b.patch(coeRFC, inXML, patchBody(inXML))
		require.True(t, again.ok, "a patch without edits changes nothing")
	}
}

// Only the result must be valid, and its errors belong to no edit.
func TestYANGPatchIsValidatedAsAWhole(t *testing.T) {
	b := newBed(t, func(c *Config) {
		c.EntryChecks = map[string]func(*yang.Data) error{"pod:coe/pods": func(d *yang.Data) error {
			if d.Leaf("name") == "x" {
				return errors.New("the name is x")
			}
			return nil
		}}
	})
	bad := testEdit{id: "1", operation: "create", target: "/pod:coe/pods=" + uid1, value: podValue(uid1)}
	refused := b.patch("/rests/data", false, patchBody(false, bad))
	require.Equal(t, 400, refused.status)
	require.Equal(t, []string{"invalid-value"}, refused.global)
	require.Equal(t, []string{"/pod:coe/pods[uid='" + uid1 + "']"}, refused.paths)
	better := testEdit{id: "2", operation: "replace", target: "/pod:coe/pods=" + uid1 + "/name", value: value(`{"pod:name":"y"}`, "")}
	require.Equal(t, 200, b.patch("/rests/data", false, patchBody(false, bad, better)).status)
	other := testEdit{id: "1", operation: "create", target: "/pod:coe/pods=" + uid2, value: podValue(uid2)}
	gone := testEdit{id: "2", operation: "delete", target: "/pod:coe/pods=" + uid2}
	require.Equal(t, 200, b.patch("/rests/data", false, patchBody(false, other, gone)).status)
}

const aclsRFC = "/rests/data/ietf-access-control-list:access-lists/acl=ipv4-acl,a"

func TestYANGPatchOfOrder(t *testing.T) {
	ace := func(name string) [2]string {
		return value(`{"ietf-access-control-list:ace":[{"rule-name":"`+name+`"}]}`,
			`<ace xmlns="urn:ietf:params:xml:ns:yang:ietf-access-control-list"><rule-name>`+name+`</rule-name></ace>`)
	}
	for _, c := range []struct {
		name   string
		edit   testEdit
		order  string
		status int
	}{
		{"insert", testEdit{operation: "insert", target: "/ace=d", value: ace("d")}, "abcd", 200},
		{"insert last", testEdit{operation: "insert", target: "/ace=d", value: ace("d"), where: "last"}, "abcd", 200},
		{"insert first", testEdit{operation: "insert", target: "/ace=d", value: ace("d"), where: "first"}, "dabc", 200},
		{"insert before", testEdit{operation: "insert", target: "/ace=d", value: ace("d"), where: "before", point: "/ace=b"}, "adbc", 200},
		{"insert after", testEdit{operation: "insert", target: "/ace=d", value: ace("d"), where: "after", point: "/ace=b"}, "abdc", 200},
		{"insert by an absolute point", testEdit{
			operation: "insert", target: "/ace=d", value: ace("d"), where: "after",
			point: "/ietf-access-control-list:access-lists/acl=ipv4-acl,a/access-list-entries/ace=a",
		}, "adbc", 200},
		{"insert what is there", testEdit{operation: "insert", target: "/ace=a", value: ace("a")}, "abc", 409},
		{"insert by what is not there", testEdit{operation: "insert", target: "/ace=d", value: ace("d"), where: "after", point: "/ace=x"}, "abc", 400},
		{"no point", testEdit{operation: "insert", target: "/ace=d", value: ace("d"), where: "after"}, "abc", 400},
		{"a point too many", testEdit{operation: "insert", target: "/ace=d", value: ace("d"), where: "last", point: "/ace=a"}, "abc", 400},
		{"a point elsewhere", testEdit{operation: "insert", target: "/ace=d", value: ace("d"), where: "after", point: "/"}, "abc", 400},
		{"no such place", testEdit{operation: "move", target: "/ace=a", where: "beside"}, "abc", 400},
		{"move", testEdit{operation: "move", target: "/ace=a"}, "bca", 200},
		{"move first", testEdit{operation: "move", target: "/ace=c", where: "first"}, "cab", 200},
		{"move before", testEdit{operation: "move", target: "/ace=c", where: "before", point: "/ace=b"}, "acb", 200},
		{"move after", testEdit{operation: "move", target: "/ace=a", where: "after", point: "/ace=b"}, "bac", 200},
		{"move by itself", testEdit{operation: "move", target: "/ace=a", where: "after", point: "/ace=a"}, "abc", 200},
		{"move by what is not there", testEdit{operation: "move", target: "/ace=a", where: "after", point: "/ace=x"}, "abc", 400},
		{"move what is not there", testEdit{operation: "move", target: "/ace=x", where: "first"}, "abc", 409},
	} {
		for _, inXML := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s xml=%t", c.name, inXML), func(t *testing.T) {
				b := newBed(t)
				made := b.do("PUT", aclsRFC, `{"ietf-access-control-list:acl":[{"acl-type":"ipv4-acl","acl-name":"a","access-list-entries":{"ace":[{"rule-name":"a"},{"rule-name":"b"},{"rule-name":"c"}]}}]}`)
				require.Equal(t, 201, made.status, made.body)
				c.edit.id = "1"
				got := b.patch(aclsRFC+"/access-list-entries", inXML, patchBody(inXML, c.edit))
				require.Equal(t, c.status, got.status, got)
				var order strings.Builder
				for _, part := range strings.Split(b.do("GET", aclsRFC, "").body, `"rule-name":"`)[1:] {
					order.WriteByte(part[0])
				}
				require.Equal(t, c.order, order.String())
			})
		}
	}
}

// A body that is not a patch is answered as any other bad request.
func TestNoYANGPatch(t *testing.T) {
	b := newBed(t)
	require.Equal(t, 201, b.do("PUT", podsRFC+uid1, podRFC(uid1)).status)
	const open = `<yang-patch xmlns="` + wire.PatchSpace + `">`
	before := b.everything()
	for _, c := range []struct {
		kind, body, tag string
	}{
		{"json", ``, "malformed-message"},
		{"json", `[]`, "malformed-message"},
		{"json", `{`, "malformed-message"},
		{"json", `{"yang-patch":{}}`, "unknown-element"},
		{"json", `{"ietf-yang-patch:yang-patch":{"edit":[]}}`, "missing-element"},
		{"json", `{"ietf-yang-patch:yang-patch":{"patch-id":1}}`, "malformed-message"},
		{"json", `{"ietf-yang-patch:yang-patch":{"patch-id":"a","patch-id":"b"}}`, "malformed-message"},
		{"json", `{"ietf-yang-patch:yang-patch":{"patch-id":"a","x":1}}`, "unknown-element"},
		{"json", `{"ietf-yang-patch:yang-patch":{"patch-id":"a","edit":{}}}`, "malformed-message"},
		{"json", `{"ietf-yang-patch:yang-patch":{"patch-id":"a","edit":[1]}}`, "malformed-message"},
		{"json", `{"ietf-yang-patch:yang-patch":{"patch-id":"a","edit":[{}]}}`, "missing-element"},
		{"json", `{"ietf-yang-patch:yang-patch":{"patch-id":"a","edit":[{"edit-id":"a"},{"edit-id":"a"}]}}`, "bad-element"},
		{"json", `{"ietf-yang-patch:yang-patch":{"patch-id":"a"}} {}`, "malformed-message"},
		{"xml", `<x/>`, "unknown-element"},
		{"xml", `<yang-patch/>`, "unknown-element"},
		{"xml", open, "malformed-message"},
		{"xml", open + `<edit/></yang-patch>`, "missing-element"},
		{"xml", open + `<patch-id>a</patch-id><patch-id>b</patch-id></yang-patch>`, "malformed-message"},
		{"xml", open + `<patch-id>a<b/></patch-id></yang-patch>`, "unknown-element"},
		{"xml", open + `text</yang-patch>`, "malformed-message"},
		{"xml", `<!DOCTYPE a [<!ENTITY b "c">]>` + open + `</yang-patch>`, "malformed-message"},
		{"xml", open + `<patch-id>&b;</patch-id></yang-patch>`, "malformed-message"},
	} {
		got := b.do("PATCH", coeRFC, c.body, header("Content-Type", "application/yang-patch+"+c.kind), header("Accept", "application/json"))
		require.Equal(t, 400, got.status, "%s: %s", c.body, got.body)
		require.Equal(t, c.tag, got.tag(), "%s: %s", c.body, got.body)
	}
	many := strings.Repeat(`{"edit-id":"a"},`, wire.MaxEdits) + `{"edit-id":"a"}`
	require.Equal(t, 413, b.do("PATCH", coeRFC, `{"ietf-yang-patch:yang-patch":{"patch-id":"a","edit":[`+many+`]}}`,
		header("Content-Type", "application/yang-patch+json")).status)
	require.Equal(t, 406, b.do("PATCH", coeRFC, patchBody(false), header("Content-Type", "application/yang-patch+json"), header("Accept", "text/html")).status)
	require.Equal(t, 415, b.do("PATCH", coe, patchBody(false), header("Content-Type", "application/yang-patch+json")).status, "draft-02 has none")
	around := `<yang-patch xmlns="` + wire.PatchSpace + `" xmlns:a="` + strings.Repeat("x", 1<<16) + `"><patch-id>p</patch-id>` +
		strings.Repeat(`<edit><value><a/></value></edit>`, 1000) + `</yang-patch>`
	require.Equal(t, 400, b.do("PATCH", coeRFC, around, header("Content-Type", "application/yang-patch+xml")).status)
	inXML := b.do("PATCH", coeRFC, open, header("Content-Type", "application/yang-patch+xml"))
	require.Equal(t, "malformed-message", xmlError(t, inXML, 400).Tag)
	require.Equal(t, before, b.everything())
	for _, path := range []string{"/rests/data", coeRFC, podsRFC + uid1} {
		require.Contains(t, b.do("OPTIONS", path, "").header.Get("Accept-Patch"), "application/yang-patch+xml")
		refused := b.do("PATCH", path, "x", header("Content-Type", "text/plain"))
		require.Equal(t, 415, refused.status)
		require.Contains(t, refused.header.Get("Accept-Patch"), "application/yang-patch+xml", "RFC 5789 section 2.2")
		require.Empty(t, b.do("PUT", path, "x", header("Content-Type", "text/plain")).header.Get("Accept-Patch"))
	}
}

func TestYANGPatchWithConditions(t *testing.T) {
	b := newBed(t)
	require.Equal(t, 201, b.do("PUT", podsRFC+uid1, podRFC(uid1)).status)
	edit := func(uid string) string {
		return patchBody(false, testEdit{id: "1", operation: "create", target: "/pods=" + uid, value: podValue(uid)})
	}
	kind := header("Content-Type", "application/yang-patch+json")
	tag := b.tagOf(coeRFC)
	require.Equal(t, 412, b.do("PATCH", coeRFC, edit(uid2), kind, header("If-Match", `"x"`)).status)
	made := b.do("PATCH", coeRFC, edit(uid2), kind, header("If-Match", tag))
	require.Equal(t, 200, made.status, made.body)
	require.Equal(t, b.tagOf(coeRFC), made.header.Get("ETag"))
	require.Equal(t, 412, b.do("PATCH", coeRFC, edit(uid3), kind, header("If-Match", tag)).status)

	tag = b.tagOf(podsRFC + uid1)
	require.Equal(t, 204, b.do("DELETE", podsRFC+uid1, "").status)
	for _, operation := range []string{"create", "replace", "merge"} {
		whole := patchBody(false, testEdit{id: "1", operation: operation, target: "/", value: podValue(uid1)})
		for _, match := range []string{tag, "*"} {
			require.Equal(t, 412, b.do("PATCH", podsRFC+uid1, whole, kind, header("If-Match", match)).status, operation)
			require.Equal(t, 404, b.do("GET", podsRFC+uid1, "").status, "what is deleted does not come back")
		}
		made := b.do("PATCH", podsRFC+uid1, whole, kind, header("If-None-Match", "*"))
		require.Equal(t, 200, made.status, made.body)
		require.Equal(t, 204, b.do("DELETE", podsRFC+uid1, "").status)
	}
	gone := b.do("PATCH", podsRFC+uid1, podRFC(uid1), header("Content-Type", "application/yang-data+json"), header("If-Match", tag))
	require.Equal(t, 404, gone.status, "plain PATCH makes nothing")
}

func TestYANGPatchOfExternalEntries(t *testing.T) {
	w := newWorld(t)
	w.speak(uid1)
	got := w.patch("/rests/data", false, patchBody(false, testEdit{id: "1", operation: "remove", target: "/pod:coe/pods=" + uid1}))
	require.Equal(t, 409, got.status)
	require.Equal(t, map[string][]string{"1": {"in-use"}}, got.edits)
	whole := patchBody(false, testEdit{id: "1", operation: "replace", target: "/", value: podValue(uid1)})
	got = w.patch(podsRFC+uid1, false, whole, header("If-Match", w.tagOf(podsRFC+uid1)))
	require.Equal(t, 409, got.status)
	require.Equal(t, map[string][]string{"1": {"in-use"}}, got.edits)
}

// The namespaces around a value hold in it.
func TestYANGPatchNamespacesOfAValue(t *testing.T) {
	b := newBed(t)
	body := `<y:yang-patch xmlns:y="` + wire.PatchSpace + `" xmlns:p="urn:opendaylight:coe:northbound:pod"><y:patch-id>p</y:patch-id><y:edit>` +
		`<y:edit-id>1</y:edit-id><y:operation>create</y:operation><y:target>/pod:coe/pods=` + uid1 + `</y:target>` +
		`<y:value><p:pods ><p:uid>` + uid1 + `</p:uid><p:name>&lt;a&gt;</p:name></p:pods></y:value></y:edit></y:yang-patch>`
	require.Equal(t, 200, b.patch("/rests/data", true, body).status)
	require.JSONEq(t, `{"pod:pods":[{"uid":"`+uid1+`","name":"<a>"}]}`, b.do("GET", podsRFC+uid1, "").body)
}

// judged checks a status with yanglint. The module in testdata is the module of RFC 8072, in
// which the structures of yang-data have become data nodes.
func judged(t testing.TB, kind, body string) {
	t.Helper()
	if testing.Short() {
		return
	}
	lint, err := exec.LookPath("yanglint")
	require.NoError(t, err, "install the Debian package libyang-tools")
	file := filepath.Join(t.TempDir(), "status."+kind)
	require.NoError(t, os.WriteFile(file, []byte(body), 0o600))
	out, err := exec.CommandContext(t.Context(), lint, "-t", "data", "testdata/ietf-yang-patch.yang", file).CombinedOutput()
	require.NoError(t, err, "%s: %s", body, out)
}

// No patch makes the server fail, or acknowledge what it can't show.
func FuzzYANGPatch(f *testing.F) {
	b := newBed(f)
	for _, inXML := range []bool{false, true} {
		f.Add(inXML, patchBody(inXML, testEdit{id: "1", operation: "create", target: "/pod:coe/pods=" + uid1, value: podValue(uid1)}))
		f.Add(inXML, patchBody(inXML, testEdit{id: "1", operation: "merge", target: "/pod:coe/pods=" + uid1, value: podValue(uid1)}, testEdit{id: "2", operation: "remove", target: "/pod:coe"}))
		f.Add(inXML, patchBody(inXML, testEdit{id: "1", operation: "move", target: "/ietf-access-control-list:access-lists/acl=ipv4-acl,a/access-list-entries/ace=b", where: "after", point: "/pod:coe"}))
	}
	f.Add(true, `<!DOCTYPE a>`+strings.Repeat("<a>", 1000))
	f.Add(false, strings.Repeat(`{"ietf-yang-patch:yang-patch":`, 1000))
	f.Fuzz(func(t *testing.T, inXML bool, body string) {
		kind := "json"
		if inXML {
			kind = "xml"
		}
		bed := &bed{b.Server, t, b.store}
		got := bed.do("PATCH", "/rests/data", body, header("Content-Type", "application/yang-patch+"+kind))
		require.Less(t, got.status, 500, got.body)
		if got.status == http.StatusOK {
			all := bed.do("GET", "/rests/data", "")
			require.Equal(t, 200, all.status)
			require.True(t, json.Valid([]byte(all.body)), all.body)
		}
	})
}
