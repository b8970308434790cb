package yang

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Error is one RESTCONF error (RFC 8040 section 7.1): what is wrong, and where.
type Error struct {
	Type    string // "transport", "rpc", "protocol" or "application"
	Tag     string // error-tag, for example "invalid-value" (RFC 8040 section 7)
	AppTag  string // error-app-tag, or empty
	Path    string // error-path: an instance-identifier, or empty
	Message string // error-message: says what is wrong and what would be right
}

// Error is the message, after the path where there is one.
func (e *Error) Error() string {
	if e.Path == "" {
		return e.Message
	}
	return e.Path + ": " + e.Message
}

// Errors are all that is wrong with one body. The slice is never empty.
type Errors []*Error

// Error joins the messages with "; ".
func (e Errors) Error() string {
	text := make([]string, len(e))
	for i, one := range e {
		text[i] = one.Error()
	}
	return strings.Join(text, "; ")
}

// maxQuoted is how many bytes of a value an error message repeats.
const maxQuoted = 64

// quote is a value as messages show it: quoted, and cut where it is long.
func quote(value string) string {
	if len(value) <= maxQuoted {
		return strconv.Quote(value)
	}
	end := maxQuoted
	for end > 0 && !utf8.RuneStart(value[end]) {
		end--
	}
	return strconv.Quote(value[:end]) + "…"
}

// invalidValue is the error of a value that n's type doesn't have; shown is the
// value as messages show it.
func (n *Node) invalidValue(shown string) *Error {
	return &Error{
		Type:    "protocol",
		Tag:     "invalid-value",
		Message: fmt.Sprintf("%s: %s is no value for it: want %s", n.Name, shown, n.typ.want),
	}
}
