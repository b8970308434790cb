package yang

import "strings"

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
