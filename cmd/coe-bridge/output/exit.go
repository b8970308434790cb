package output

import "fmt"

// Exit is the error of a command that ends with a status of its own.
type Exit struct {
	Status int
	// Err is the message for stderr; nil if the command has printed its answer.
	Err error
}

// Error implements error.
func (e Exit) Error() string {
	if e.Err != nil {
		return e.Err.Error()
	}
	return fmt.Sprintf("exit status %d", e.Status)
}

// Unwrap returns the error with the message.
func (e Exit) Unwrap() error { return e.Err }
