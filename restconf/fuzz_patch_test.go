package restconf

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzReadPatch holds, for any body of a YANG Patch in either encoding: it is refused
// with an error, or says the same when it is written again, in both.
func FuzzReadPatch(f *testing.F) {
	for _, inXML := range []bool{false, true} {
		f.Add(inXML, []byte(patchBody(inXML, testEdit{id: "1", operation: "create", target: "/pod:coe/pods=" + uid1, value: podValue(uid1)},
			testEdit{id: "2", operation: "move", target: "/a", where: "after", point: "/b=%2F"})))
	}
	f.Add(true, []byte(`<y:yang-patch xmlns:y="`+patchSpace+`"><y:patch-id> a<!-- b --><![CDATA[&]]></y:patch-id><y:comment/></y:yang-patch>`))
	f.Add(false, []byte(`{"ietf-yang-patch:yang-patch":{"patch-id":null,"comment":"","edit":[{"edit-id":"\u0000"}]}}`))
	f.Fuzz(func(t *testing.T, inXML bool, body []byte) {
		read := readPatchJSON
		if inXML {
			read = readPatchXML
		}
		patch, err := read(body)
		if err != nil {
			return
		}
		again, err := readPatchJSON(patchInJSON(t, patch))
		require.NoError(t, err)
		require.Equal(t, withoutValues(patch), withoutValues(again))
		if written, ok := patchInXML(patch); ok {
			again, err = readPatchXML(written)
			require.NoError(t, err, "%s", written)
			require.Equal(t, withoutValues(trimmedPatch(patch)), withoutValues(again), "%s", written)
		}
	})
}

// leaves are the leaves of an edit by name.
func (e patchEdit) leaves() [][2]string {
	return [][2]string{{"edit-id", e.id}, {"operation", e.operation}, {"target", e.target}, {"point", e.point}, {"where", e.where}}
}

func patchInJSON(t *testing.T, p yangPatch) []byte {
	t.Helper()
	edits := []map[string]any{}
	for _, e := range p.edits {
		one := map[string]any{}
		for _, leaf := range e.leaves() {
			one[leaf[0]] = leaf[1]
		}
		if e.value != nil {
			one["value"] = 0
		}
		edits = append(edits, one)
	}
	out, err := json.Marshal(map[string]any{patchModule + ":yang-patch": map[string]any{"patch-id": p.id, "edit": edits}})
	require.NoError(t, err)
	return out
}

// patchInXML writes a patch; ok is false where it holds what XML has no characters for.
func patchInXML(p yangPatch) (out []byte, ok bool) {
	var b bytes.Buffer
	ok = true
	element := func(name, text string) {
		var escaped bytes.Buffer
		_ = xml.EscapeText(&escaped, []byte(text)) // writing to a buffer doesn't fail
		ok = ok && (strings.Contains(text, "\ufffd") || !strings.Contains(escaped.String(), "\ufffd"))
		b.WriteString("<" + name + ">" + escaped.String() + "</" + name + ">")
	}
	b.WriteString(`<yang-patch xmlns="` + patchSpace + `">`)
	element("patch-id", p.id)
	for _, e := range p.edits {
		b.WriteString("<edit>")
		for _, leaf := range e.leaves() {
			element(leaf[0], leaf[1])
		}
		if e.value != nil {
			element("value", "")
		}
		b.WriteString("</edit>")
	}
	b.WriteString("</yang-patch>")
	return b.Bytes(), ok
}

// trimmedPatch is a patch as XML has it, where spaces around an edit's leaves are
// nothing.
func trimmedPatch(p yangPatch) yangPatch {
	out := yangPatch{id: p.id}
	for _, e := range p.edits {
		one := patchEdit{value: e.value}
		for _, leaf := range e.leaves() {
			_ = one.set(leaf[0], strings.TrimSpace(leaf[1])) // of these names
		}
		out.edits = append(out.edits, one)
	}
	return out
}

// withoutValues keeps of values whether they are there.
func withoutValues(p yangPatch) yangPatch {
	out := yangPatch{id: p.id}
	for _, e := range p.edits {
		if e.value != nil {
			e.value = []byte{}
		}
		out.edits = append(out.edits, e)
	}
	return out
}
