package controller

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
)

// AnswerError is an answer of the controller that is not a success.
type AnswerError struct {
	method, path string
	Status       int
	tag, message string // of its first error; may be empty
}

func (e *AnswerError) Error() string {
	text := fmt.Sprintf("%s %s: %d %s", e.method, e.path, e.Status, http.StatusText(e.Status))
	if e.message != "" {
		text += ": " + e.message
	}
	return text
}

// IsRefusal reports whether an error is an answer that refuses the request. Such an answer
// does not affect the session.
func IsRefusal(err error) bool {
	var answer *AnswerError
	return errors.As(err, &answer) && answer.refuses()
}

// refuses reports whether the answer concerns the request, not the state of the controller:
// the controller is ready and knows the user. A status of 500 is ambiguous: the controller
// refuses the request for good, or failed this time only.
func (e *AnswerError) refuses() bool {
	switch e.Status {
	case http.StatusBadRequest, http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity, http.StatusInternalServerError:
		return e.tag != "unknown-element" || !strings.Contains(e.message, "module")
	}
	return false
}

// errUnauthorized reports that the controller does not accept the credentials.
var errUnauthorized = errors.New("the controller does not accept the user and password; put the user and password of a known user into --odl-auth-file")

const (
	maxErrorBytes   = 8 << 10 // that are read of an answer with an error
	maxErrorMessage = 300     // bytes of its message that are shown
)

// readError returns the error of an answer. The answer may have any content.
func readError(method, path string, r *http.Response) error {
	e := &AnswerError{method: method, path: path, Status: r.StatusCode}
	if r.StatusCode == http.StatusUnauthorized || r.StatusCode == http.StatusForbidden {
		return fmt.Errorf("%w: %w", e, errUnauthorized)
	}
	text, err := io.ReadAll(io.LimitReader(r.Body, maxErrorBytes))
	if err == nil && isJSON(r) {
		e.tag, e.message = readErrors(text)
	}
	return e
}

// readErrors reads the first error of an answer, in the form of draft-02 or of RFC 8040.
func readErrors(text []byte) (tag, message string) {
	type errorList struct {
		Error []struct {
			Tag     string `json:"error-tag"`
			Message string `json:"error-message"`
			Info    any    `json:"error-info"`
		} `json:"error"`
	}
	var answer struct {
		Draft errorList `json:"errors"`
		RFC   errorList `json:"ietf-restconf:errors"`
	}
	if json.Unmarshal(text, &answer) != nil {
		return "", ""
	}
	all := slices.Concat(answer.Draft.Error, answer.RFC.Error)
	if len(all) == 0 {
		return "", ""
	}
	message = strings.TrimSpace(all[0].Message)
	if info, ok := all[0].Info.(string); ok && !strings.Contains(message, info) {
		message += ": " + info
	}
	return all[0].Tag, strings.ToValidUTF8(message[:min(len(message), maxErrorMessage)], "")
}

// isJSON reports whether the media type of an answer is JSON.
func isJSON(r *http.Response) bool {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && (media == "application/json" || strings.HasSuffix(media, "+json"))
}

// checkJSON returns an error for an answer that is not JSON.
func checkJSON(method, path string, r *http.Response) error {
	if isJSON(r) {
		return nil
	}
	return fmt.Errorf("%s %s: the answer is %q and not JSON; check that the URL is OpenDaylight's, and not that of another server or a proxy",
		method, path, r.Header.Get("Content-Type"))
}

// errTooLong reports an answer that exceeds the limit.
var errTooLong = errors.New("the answer is too long")

// bounded reads a body up to a limit, and then fails.
type bounded struct {
	body io.Reader
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errTooLong
	}
	n, err := b.body.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}
