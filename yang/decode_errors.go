package yang

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

func kindName(kind jsontext.Kind) string {
	switch kind {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case '0':
		return "a number"
	case 'n':
		return "null"
	default:
		return "a boolean"
	}
}

func shapeOf(node *Node) string {
	switch node.Kind {
	case Container:
		return "an object"
	case List:
		return "an array of objects"
	case LeafList:
		return "an array, each " + node.typ.want
	default:
		return node.typ.want
	}
}

// maxNames is the maximum number of names that an error message lists.
const maxNames = 12

func unknownMember(name string, parent *Node) *Error {
	var known, meant []string
	for _, child := range parent.Children {
		full := child.Name
		if child.Module != parent.Module {
			full = child.Module.Name + ":" + child.Name
		}
		known = append(known, full)
		if child.Name == name {
			meant = append(meant, full)
		}
	}
	if len(meant) > 0 {
		known = meant
	}
	if len(known) > maxNames {
		known = append(known[:maxNames], "…")
	}
	where := "here"
	if parent.Name != "" {
		where = "in " + parent.Name
	}
	return &Error{
		Type:    "protocol",
		Tag:     "unknown-element",
		Message: fmt.Sprintf("no member %s %s: want %s", quote(name), where, alternatives(known)),
	}
}

func wrongShape(node *Node, got, want string) *Error {
	return &Error{
		Type:    "protocol",
		Tag:     "invalid-value",
		Message: fmt.Sprintf("%s: got %s: want %s", node.Name, got, want),
	}
}

func missingKeys(node *Node, missing []string) *Error {
	return &Error{
		Type:    "protocol",
		Tag:     "missing-element",
		Message: fmt.Sprintf("%s: entry without its key: want %s", node.Name, strings.Join(missing, " and ")),
	}
}

func duplicate(node *Node, what string) *Error {
	return &Error{
		Type:    "protocol",
		Tag:     "bad-element",
		Message: fmt.Sprintf("%s: %s appears twice: want it once", node.Name, what),
	}
}

func excluded(node, other *Node, c *choice) *Error {
	return &Error{
		Type:    "protocol",
		Tag:     "bad-element",
		Message: fmt.Sprintf("%s: cannot be combined with %s: want only one case of %s", node.Name, other.Name, c.name),
	}
}

// malformed returns the error for a body with invalid JSON syntax or encoding.
func (d *decoder) malformed(err error, empty bool) *Error {
	out := &Error{Type: "protocol", Tag: "malformed-message"}
	var syntax *jsontext.SyntacticError
	switch {
	case empty:
		out.Message = "the body is empty: want a JSON object"
	case errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF):
		out.Message = "the body ends too early: want a complete JSON object"
	case errors.As(err, &syntax):
		out.Message = fmt.Sprintf("the body is not JSON at byte %d: %s", syntax.ByteOffset, syntax.Err)
	default:
		out.Message = fmt.Sprintf("the body is wrong at byte %d: %s", d.json.InputOffset(), err)
	}
	return out
}
