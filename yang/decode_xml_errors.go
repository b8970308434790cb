package yang

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
)

func unknownNamespace(name xml.Name, parent *Node) *Error {
	want := "the namespace of a module"
	if parent.Module != nil {
		want = quote(parent.Module.Namespace)
	}
	return &Error{
		Type:    "protocol",
		Tag:     "unknown-namespace",
		Message: fmt.Sprintf("%s: no module has the namespace %s: want %s", name.Local, quote(name.Space), want),
	}
}

// malformed returns the error for a body with invalid XML syntax or encoding.
func (d *xmlDecoder) malformed(err error) *Error {
	out := &Error{Type: "protocol", Tag: "malformed-message"}
	var syntax *xml.SyntaxError
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		out.Message = "the body is empty: want an XML element"
	case errors.As(err, &syntax):
		out.Message = fmt.Sprintf("the body is not XML in line %d: %s", syntax.Line, syntax.Msg)
	default:
		out.Message = fmt.Sprintf("the body is wrong at byte %d: %s", d.xml.InputOffset(), err)
	}
	return out
}
