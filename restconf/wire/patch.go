package wire

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

	"github.com/coe-bridge/coe-bridge/restconf/tree"
	"github.com/coe-bridge/coe-bridge/yang"
)

// The module of a YANG Patch, and its limit.
const (
	// PatchModule and PatchSpace are the module of RFC 8072 and its namespace.
	PatchModule = "ietf-yang-patch"
	PatchSpace  = "urn:ietf:params:xml:ns:yang:ietf-yang-patch"
	// MaxEdits bounds the edits of one patch.
	MaxEdits = 10000
)

// yangPatches are the media types of a YANG Patch, and of its status.
var yangPatches = map[string]Media{
	"application/yang-patch+json": {"application/yang-data+json", jsonCodec{}},
	"application/yang-patch+xml":  {"application/yang-data+xml", xmlCodec{}},
}

// Patch is a list of edits that are made in their order, all or none (RFC 8072).
type Patch struct {
	ID    string
	Edits []PatchEdit
}

// PatchEdit is an edit as it was sent. Paths are below the request's target.
type PatchEdit struct {
	ID, operation, target string
	Point, where          string // of an insert or move
	value                 []byte // the target's instance, encoded as the patch; nil: none
}

// patchOperations are the operations of edits, and whether they have a value.
var patchOperations = map[string]struct {
	op       tree.Op
	hasValue bool
}{
	"create": {tree.Create, true}, "delete": {tree.Delete, false}, "insert": {tree.Insert, true}, "merge": {tree.Merge, true},
	"move": {tree.Move, false}, "replace": {tree.Replace, true}, "remove": {tree.Remove, false},
}

// YANGPatchOf reports whether a request is a YANG Patch, and returns the media type of data
// in its encoding.
func (d *Dialect) YANGPatchOf(r *http.Request) (m Media, ok bool) {
	if d.Draft || r.Method != http.MethodPatch {
		return Media{}, false
	}
	name, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return Media{}, false
	}
	m, ok = yangPatches[name]
	return m, ok
}

// ReadPatch reads a patch. It fails if the body is not a patch, or if edits have no id of
// their own. It does not judge the edits.
func ReadPatch(body []byte, m Media) (p Patch, err error) {
	if m.IsXML() {
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
	var whole *Problem
	if _, known := tree.AsErrors(err); known || errors.As(err, &whole) {
		return err
	}
	return Malformed("the body is no YANG Patch: " + err.Error())
}

// check finds what is wrong with the patch as a whole.
func (p Patch) check() error {
	if p.ID == "" {
		return &yang.Error{Type: "protocol", Tag: "missing-element", Path: patchPath, Message: "patch-id: not there: want a name for the patch"}
	}
	seen := make(map[string]bool, len(p.Edits))
	for i, e := range p.Edits {
		at := fmt.Sprintf("%s/edit[%d]", patchPath, i+1)
		switch {
		case e.ID == "":
			return &yang.Error{Type: "protocol", Tag: "missing-element", Path: at, Message: "edit-id: not there: want a name for the edit"}
		case seen[e.ID]:
			return &yang.Error{Type: "protocol", Tag: "bad-element", Path: at, Message: "edit-id: another edit has it too: want one of its own"}
		}
		seen[e.ID] = true
	}
	return nil
}

const patchPath = "/" + PatchModule + ":yang-patch"

// check finds what is wrong with an edit in itself.
func (e PatchEdit) check() error {
	operation, known := patchOperations[e.operation]
	switch {
	case !known:
		return fault("invalid-value", "operation: "+strconv.Quote(e.operation)+" is none: want create, delete, insert, merge, move, replace or remove")
	case e.target == "":
		return fault("missing-element", `target: not there: want a path below the request's target, or "/" for that itself`)
	case operation.hasValue && e.value == nil:
		return fault("missing-element", "value: not there: want what the operation "+e.operation+" is to write")
	case !operation.hasValue && e.value != nil:
		return fault("unknown-element", "value: the operation "+e.operation+" has none")
	}
	return e.checkPlace()
}

// orders reports whether the edit puts its entry at a place.
func (e PatchEdit) orders() bool { return e.operation == "insert" || e.operation == "move" }

// checkPlace finds what is wrong with where an edit puts its entry.
func (e PatchEdit) checkPlace() error {
	needsPoint := tree.NeedsPoint(e.where)
	switch {
	case !e.orders() && (e.where != "" || e.Point != ""):
		return fault("unknown-element", "where and point are for the operations insert and move alone")
	case e.where != "" && !slices.Contains(tree.Places, e.where):
		return fault("invalid-value", "where: want first, last, before or after")
	case needsPoint && e.Point == "":
		return fault("missing-element", "point: not there: want the entry "+e.where+" which the target is to be")
	case !needsPoint && e.Point != "":
		return fault("unknown-element", "point is for the places before and after alone")
	}
	return nil
}

// Edit is the edit of the tree that e is, in a patch of the resource base. editable fails
// if clients cannot write the target.
func (e PatchEdit) Edit(d *Dialect, schema *yang.Schema, base tree.Target, m Media, editable func(tree.Target) error) (edit tree.Edit, err error) {
	if err := e.check(); err != nil {
		return edit, err
	}
	edit = tree.Edit{ID: e.ID, Op: patchOperations[e.operation].op, Where: e.where}
	if edit.At, err = RFC8040.parseBelow(schema, base, e.target); err != nil {
		return edit, err
	}
	if edit.At.IsRoot() {
		return edit, edit.At.Invalid("an edit is for one of the top containers: name it in its target")
	}
	if err := editable(edit.At); err != nil {
		return edit, err
	}
	if e.orders() {
		if edit.Point, err = PointOf(schema, base, edit.At, e.where, e.Point); err != nil {
			return edit, err
		}
	}
	if e.value != nil {
		edit.Data, err = d.Decode(schema, edit.At, false, m, e.value)
	}
	if edit.Op == tree.Create {
		edit.At = edit.At.Parent()
	}
	return edit, err
}

func fault(tag, message string) error {
	return &yang.Error{Type: "protocol", Tag: tag, Message: message}
}

// set takes a leaf of an edit.
func (e *PatchEdit) set(name, value string) error {
	switch name {
	case "edit-id":
		e.ID = value
	case "operation":
		e.operation = value
	case "target":
		e.target = value
	case "point":
		e.Point = value
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
	return NewProblem(http.StatusRequestEntityTooLarge, "protocol", "too-big",
		fmt.Sprintf("the patch has more than %d edits: send several patches", MaxEdits))
}

func readPatchJSON(body []byte) (p Patch, err error) {
	var inner json.RawMessage
	err = members(body, func(name string, value json.RawMessage) error {
		if name != PatchModule+":yang-patch" {
			return unknownInPatch(name)
		}
		inner = value
		return nil
	})
	if err == nil && inner == nil {
		err = errors.New("want the member " + PatchModule + ":yang-patch")
	}
	if err != nil {
		return p, err
	}
	err = members(inner, func(name string, value json.RawMessage) (err error) {
		switch name {
		case "patch-id":
			return json.Unmarshal(value, &p.ID)
		case "comment":
			return json.Unmarshal(value, new(string))
		case "edit":
			p.Edits, err = readEditsJSON(value)
			return err
		}
		return unknownInPatch(name)
	})
	return p, err
}

func readEditsJSON(body []byte) (edits []PatchEdit, err error) {
	dec := json.NewDecoder(bytes.NewReader(body))
	if open, err := dec.Token(); err != nil || open != json.Delim('[') {
		return nil, errors.New("edit: want an array")
	}
	for dec.More() {
		if len(edits) == MaxEdits {
			return nil, tooManyEdits()
		}
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return nil, err
		}
		var e PatchEdit
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

// members calls fn with each member of an object, which must be the whole body.
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
