package yang

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
)

func unknownNamespace(name xml.Name, parent *Node) *Error {
	want := "that of a module"
	if parent.Module != nil {
		want = quote(parent.Module.Namespace)
	}
	return &Error{
		Type:    "protocol",
		Tag:     "unknown-namespace",
		Message: fmt.Sprintf("%s: no module has the namespace %s: want %s", name.Local, quote(name.Space), want),
	}
}

// malformed is the error of a body that isn't what XML or the encoding allows.
func (d *xmlDecoder) malformed(err error) *Error {
	out := &Error{Type: "protocol", Tag: "malformed-message"}
	var syntax *xml.SyntaxError
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		out.Message = "the body is empty: want an XML element"
	case errors.As(err, &syntax):
		out.Message = fmt.Sprintf("the body is no XML in line %d: %s", syntax.Line, syntax.Msg)
	default:
		out.Message = fmt.Sprintf("the body is wrong at byte %d: %s", d.xml.InputOffset(), err)
	}
	return out
}
