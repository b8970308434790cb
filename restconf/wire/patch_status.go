package wire

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"

	"github.com/coe-bridge/coe-bridge/restconf/tree"
	"github.com/coe-bridge/coe-bridge/yang"
)

// ErrorList is the container errors of RFC 8040 in the status of a patch.
type ErrorList struct {
	Errors []ErrorEntry `json:"error" xml:"error"`
}

// EditStatus is what is wrong with one edit.
type EditStatus struct {
	ID     string    `json:"edit-id" xml:"edit-id"`
	Errors ErrorList `json:"errors" xml:"errors"`
}

type editStatuses struct {
	Edits []EditStatus `json:"edit" xml:"edit"`
}

// PatchStatus is the answer to a patch: ok, or what is wrong, edit by edit (RFC 8072
// section 2.3).
func PatchStatus(s *yang.Schema, m Media, id string, wrong []error) []byte {
	status := struct {
		XMLName xml.Name      `json:"-"`
		ID      string        `json:"patch-id" xml:"patch-id"`
		Errors  *ErrorList    `json:"errors,omitempty" xml:"errors"`
		OK      []*string     `json:"ok,omitempty" xml:"-"`
		OKXML   *struct{}     `json:"-" xml:"ok"`
		Edits   *editStatuses `json:"edit-status,omitempty" xml:"edit-status"`
	}{XMLName: xml.Name{Space: PatchSpace, Local: "yang-patch-status"}, ID: id}
	if len(wrong) == 0 {
		status.OK, status.OKXML = []*string{nil}, &struct{}{}
	}
	for _, err := range wrong {
		entries := ErrorList{errorEntries(s, ProblemOf(err).Errors)}
		one, ok := errors.AsType[*tree.EditError](err)
		if !ok {
			status.Errors = &entries
			continue
		}
		if status.Edits == nil {
			status.Edits = &editStatuses{}
		}
		status.Edits.Edits = append(status.Edits.Edits, EditStatus{one.ID, entries})
	}
	if m.IsXML() {
		body, _ := xml.Marshal(status) // strings always encode
		return body
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(map[string]any{PatchModule + ":yang-patch-status": status}) // as above
	return buf.Bytes()
}
