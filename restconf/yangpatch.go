package restconf

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"

	"github.com/coe-bridge/coe-bridge/yang"
)

const (
	// patchModule and patchSpace are the module of RFC 8072 and its namespace.
	patchModule = "ietf-yang-patch"
	patchSpace  = "urn:ietf:params:xml:ns:yang:ietf-yang-patch"
	// maxEdits bounds the edits of one patch.
	maxEdits = 10000
)

// yangPatches are the media types of a YANG Patch, and those that its status has.
var yangPatches = map[string]media{
	"application/yang-patch+json": {"application/yang-data+json", jsonCodec{}},
	"application/yang-patch+xml":  {"application/yang-data+xml", xmlCodec{}},
}

// yangPatch is a list of edits that are all made, in their order, or none of them
// (RFC 8072).
type yangPatch struct {
	id    string
	edits []patchEdit
}

// patchEdit is an edit as it was sent. Paths are below the request's target.
type patchEdit struct {
	id, operation, target string
	point, where          string // of an insert or move
	value                 []byte // the target's instance, encoded as the patch; nil: none
}

// patchOperations are the edits that there are, and whether they have a value.
var patchOperations = map[string]bool{
	"create": true, "delete": false, "insert": true, "merge": true, "move": false, "replace": true, "remove": false,
}

// yangPatchOf tells whether a request is a YANG Patch, and the media type of data in
// its encoding.
func (d *dialect) yangPatchOf(r *http.Request) (m media, ok bool) {
	if d.draft || r.Method != http.MethodPatch {
		return media{}, false
	}
	name, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return media{}, false
	}
	m, ok = yangPatches[name]
	return m, ok
}

// readPatch reads a patch. What is no patch at all, or has edits that can't be told
// apart, is an error; whether an edit makes sense is its own matter.
func readPatch(body []byte, m media) (p yangPatch, err error) {
	if m.isXML() {
		p, err = readPatchXML(body)
	} else {
		p, err = readPatchJSON(body)
	}
	if err != nil {
		return p, patchError(err)
	}
	return p, p.check()
}

func patchError(err error) error {
	var whole *problem
	if _, known := asErrors(err); known || errors.As(err, &whole) {
		return err
	}
	return malformed("the body is no YANG Patch: " + err.Error())
}

// check finds what is wrong with the patch as a whole.
func (p yangPatch) check() error {
	if p.id == "" {
		return &yang.Error{Type: "protocol", Tag: "missing-element", Path: patchPath, Message: "patch-id: not there: want a name for the patch"}
	}
	seen := make(map[string]bool, len(p.edits))
	for i, e := range p.edits {
		at := fmt.Sprintf("%s/edit[%d]", patchPath, i+1)
		switch {
		case e.id == "":
			return &yang.Error{Type: "protocol", Tag: "missing-element", Path: at, Message: "edit-id: not there: want a name for the edit"}
		case seen[e.id]:
			return &yang.Error{Type: "protocol", Tag: "bad-element", Path: at, Message: "edit-id: another edit has it too: want one of its own"}
		}
		seen[e.id] = true
	}
	return nil
}

const patchPath = "/" + patchModule + ":yang-patch"

// check finds what is wrong with an edit in itself.
func (e patchEdit) check() error {
	hasValue, known := patchOperations[e.operation]
	switch {
	case !known:
		return fault("invalid-value", "operation: "+strconv.Quote(e.operation)+" is none: want create, delete, insert, merge, move, replace or remove")
	case e.target == "":
		return fault("missing-element", `target: not there: want a path below the request's target, or "/" for that itself`)
	case hasValue && e.value == nil:
		return fault("missing-element", "value: not there: want what the operation "+e.operation+" is to write")
	case !hasValue && e.value != nil:
		return fault("unknown-element", "value: the operation "+e.operation+" has none")
	}
	return e.checkPlace()
}

// checkPlace finds what is wrong with where an edit puts its entry.
func (e patchEdit) checkPlace() error {
	orders := e.operation == "insert" || e.operation == "move"
	needsPoint := e.where == "before" || e.where == "after"
	switch {
	case !orders && (e.where != "" || e.point != ""):
		return fault("unknown-element", "where and point are for the operations insert and move alone")
	case e.where != "" && !slices.Contains(places, e.where):
		return fault("invalid-value", "where: want first, last, before or after")
	case needsPoint && e.point == "":
		return fault("missing-element", "point: not there: want the entry "+e.where+" which the target is to be")
	case !needsPoint && e.point != "":
		return fault("unknown-element", "point is for the places before and after alone")
	}
	return nil
}

func fault(tag, message string) error {
	return &yang.Error{Type: "protocol", Tag: tag, Message: message}
}

// set takes a leaf of an edit.
func (e *patchEdit) set(name, value string) error {
	switch name {
	case "edit-id":
		e.id = value
	case "operation":
		e.operation = value
	case "target":
		e.target = value
	case "point":
		e.point = value
	case "where":
		e.where = value
	default:
		return unknownInPatch(name)
	}
	return nil
}

func unknownInPatch(name string) error {
	return &yang.Error{Type: "protocol", Tag: "unknown-element", Path: patchPath, Message: "there is no member " + strconv.Quote(name) + " in a YANG Patch"}
}

func tooManyEdits() error {
	return newProblem(http.StatusRequestEntityTooLarge, "protocol", "too-big",
		fmt.Sprintf("the patch has more than %d edits: send several patches", maxEdits))
}

func readPatchJSON(body []byte) (p yangPatch, err error) {
	var inner json.RawMessage
	err = members(body, func(name string, value json.RawMessage) error {
		if name != patchModule+":yang-patch" {
			return unknownInPatch(name)
		}
		inner = value
		return nil
	})
	if err == nil && inner == nil {
		err = errors.New("want the member " + patchModule + ":yang-patch")
	}
	if err != nil {
		return p, err
	}
	err = members(inner, func(name string, value json.RawMessage) (err error) {
		switch name {
		case "patch-id":
			return json.Unmarshal(value, &p.id)
		case "comment":
			return json.Unmarshal(value, new(string))
		case "edit":
			p.edits, err = readEditsJSON(value)
			return err
		}
		return unknownInPatch(name)
	})
	return p, err
}

func readEditsJSON(body []byte) (edits []patchEdit, err error) {
	dec := json.NewDecoder(bytes.NewReader(body))
	if open, err := dec.Token(); err != nil || open != json.Delim('[') {
		return nil, errors.New("edit: want an array")
	}
	for dec.More() {
		if len(edits) == maxEdits {
			return nil, tooManyEdits()
		}
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return nil, err
		}
		var e patchEdit
		err := members(raw, func(name string, value json.RawMessage) error {
			if name == "value" {
				e.value = value
				return nil
			}
			var text string
			if err := json.Unmarshal(value, &text); err != nil {
				return err
			}
			return e.set(name, text)
		})
		if err != nil {
			return nil, err
		}
		edits = append(edits, e)
	}
	return edits, nil
}

// members calls fn with each member of an object, which has to be all of body.
func members(body []byte, fn func(name string, value json.RawMessage) error) error {
	dec := json.NewDecoder(bytes.NewReader(body))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return errors.Join(errors.New("want a JSON object"), err)
	}
	seen := map[string]bool{}
	for dec.More() {
		token, err := dec.Token()
		if err != nil {
			return err
		}
		name, _ := token.(string)
		if seen[name] {
			return errors.New("a member is there twice: " + strconv.Quote(name))
		}
		seen[name] = true
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return err
		}
		if err := fn(name, value); err != nil {
			return err
		}
	}
	if _, err := dec.Token(); err != nil { // "}", or what is wrong
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("want nothing after the JSON object")
	}
	return nil
}
