package yang

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Error is one RESTCONF error (RFC 8040 section 7.1).
type Error struct {
	Type    string // "transport", "rpc", "protocol" or "application"
	Tag     string // error-tag, for example "invalid-value" (RFC 8040 section 7)
	AppTag  string // error-app-tag, or empty
	Path    string // error-path: an instance-identifier, or empty
	Message string // error-message: the error, and the valid values
}

// Error returns the message, after the path if there is one.
func (e *Error) Error() string {
	if e.Path == "" {
		return e.Message
	}
	return e.Path + ": " + e.Message
}

// Errors holds all errors of one body. It is never empty.
type Errors []*Error

// Error joins the messages with "; ".
func (e Errors) Error() string {
	text := make([]string, len(e))
	for i, one := range e {
		text[i] = one.Error()
	}
	return strings.Join(text, "; ")
}

// maxQuoted is the maximum number of bytes of a value in an error message.
const maxQuoted = 64

// quote returns a value for messages: quoted, and cut if it is long.
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

// invalidValue returns the error for an invalid value of n; shown is the value as in messages.
func (n *Node) invalidValue(shown string) *Error {
	return &Error{
		Type:    "protocol",
		Tag:     "invalid-value",
		Message: fmt.Sprintf("%s: %s is not a valid value: want %s", n.Name, shown, n.typ.want),
	}
}
