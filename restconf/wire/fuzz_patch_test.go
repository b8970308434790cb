package wire

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
	const uid1 = "11111111-1111-4111-8111-111111111111"
	f.Add(false, []byte(`{"ietf-yang-patch:yang-patch":{"patch-id":"p","edit":[`+
		`{"edit-id":"1","operation":"create","target":"/pod:coe/pods=`+uid1+`","value":{"pod:pods":[{"uid":"`+uid1+`"}]}},`+
		`{"edit-id":"2","operation":"move","target":"/a","where":"after","point":"/b=%2F"}]}}`))
	f.Add(true, []byte(`<yang-patch xmlns="`+PatchSpace+`"><patch-id>p</patch-id>`+
		`<edit><edit-id>1</edit-id><operation>create</operation><target>/pod:coe/pods=`+uid1+`</target>`+
		`<value><pods xmlns="urn:opendaylight:coe:northbound:pod"><uid>`+uid1+`</uid></pods></value></edit>`+
		`<edit><edit-id>2</edit-id><operation>move</operation><target>/a</target><point>/b=%2F</point><where>after</where></edit></yang-patch>`))
	f.Add(true, []byte(`<y:yang-patch xmlns:y="`+PatchSpace+`"><y:patch-id> a<!-- b --><![CDATA[&]]></y:patch-id><y:comment/></y:yang-patch>`))
	f.Add(false, []byte(`{"ietf-yang-patch:yang-patch":{"patch-id":null,"comment":"","edit":[{"edit-id":"\u0000"}]}}`))
	f.Add(false, []byte(`{"ietf-yang-patch:yang-patch":{"patch-id":null,"comment":"","edit":[{"edit-id":"\ufffd\u0000"}]}}`))
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
func (e PatchEdit) leaves() [][2]string {
	return [][2]string{{"edit-id", e.ID}, {"operation", e.operation}, {"target", e.target}, {"point", e.Point}, {"where", e.where}}
}

func patchInJSON(t *testing.T, p Patch) []byte {
	t.Helper()
	edits := []map[string]any{}
	for _, e := range p.Edits {
		one := map[string]any{}
		for _, leaf := range e.leaves() {
			one[leaf[0]] = leaf[1]
		}
		if e.value != nil {
			one["value"] = 0
		}
		edits = append(edits, one)
	}
	out, err := json.Marshal(map[string]any{PatchModule + ":yang-patch": map[string]any{"patch-id": p.ID, "edit": edits}})
	require.NoError(t, err)
	return out
}

// patchInXML writes a patch; ok is false where it holds what XML has no characters for.
func patchInXML(p Patch) (out []byte, ok bool) {
	var b bytes.Buffer
	ok = true
	element := func(name, text string) {
		var escaped bytes.Buffer
		_ = xml.EscapeText(&escaped, []byte(text))                                            // writing to a buffer doesn't fail
		ok = ok && strings.Count(text, "\ufffd") == strings.Count(escaped.String(), "\ufffd") // it replaces what XML has no character for
		b.WriteString("<" + name + ">" + escaped.String() + "</" + name + ">")
	}
	b.WriteString(`<yang-patch xmlns="` + PatchSpace + `">`)
	element("patch-id", p.ID)
	for _, e := range p.Edits {
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
func trimmedPatch(p Patch) Patch {
	out := Patch{ID: p.ID}
	for _, e := range p.Edits {
		one := PatchEdit{value: e.value}
		for _, leaf := range e.leaves() {
			_ = one.set(leaf[0], strings.TrimSpace(leaf[1])) // of these names
		}
		out.Edits = append(out.Edits, one)
	}
	return out
}

// withoutValues keeps of values whether they are there.
func withoutValues(p Patch) Patch {
	out := Patch{ID: p.ID}
	for _, e := range p.Edits {
		if e.value != nil {
			e.value = []byte{}
		}
		out.Edits = append(out.Edits, e)
	}
	return out
}
