package output

import "fmt"

// Exit is the error of a command that has printed its answer and ends with a status of its own.
// It has no message for stderr.
type Exit struct{ Status int }

// Error implements error.
func (e Exit) Error() string { return fmt.Sprintf("exit status %d", e.Status) }
