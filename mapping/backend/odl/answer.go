package odl

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

// answerError is an answer of the controller that is not a success.
type answerError struct {
	method, path string
	status       int
	tag, message string // as far as the answer says
}

func (e *answerError) Error() string {
	text := fmt.Sprintf("%s %s: %d %s", e.method, e.path, e.status, http.StatusText(e.status))
	if e.message != "" {
		text += ": " + e.message
	}
	return text
}

// isRefusal tells whether an error is an answer about what was asked: it says nothing
// about the session.
func isRefusal(err error) bool {
	var answer *answerError
	return errors.As(err, &answer) && answer.refuses()
}

// refuses tells whether the answer is about what was asked, not about the controller: it is
// there, is ready and knows who asks. Whether it will never take it, or failed this once, it
// does not say (500).
func (e *answerError) refuses() bool {
	switch e.status {
	case http.StatusBadRequest, http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity, http.StatusInternalServerError:
		return e.tag != "unknown-element" || !strings.Contains(e.message, "module")
	}
	return false
}

// errUnauthorized is why a controller that does not know who asks is of no use.
var errUnauthorized = errors.New("it does not take the user and password; see that --odl-auth-file has those of a user that it knows")

const (
	maxErrorBytes   = 8 << 10 // is read of an answer that is no success
	maxErrorMessage = 300     // is shown of it
)

// readError makes an error of an answer. It depends on nothing that the answer should say.
func readError(method, path string, r *http.Response) error {
	e := &answerError{method: method, path: path, status: r.StatusCode}
	if r.StatusCode == http.StatusUnauthorized || r.StatusCode == http.StatusForbidden {
		return fmt.Errorf("%w: %w", e, errUnauthorized)
	}
	text, err := io.ReadAll(io.LimitReader(r.Body, maxErrorBytes))
	if err == nil && isJSON(r) {
		e.tag, e.message = readErrors(text)
	}
	return e
}

// readErrors reads the first of the errors that an answer lists, in the form of either
// dialect.
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

// isJSON tells whether an answer says that it is JSON.
func isJSON(r *http.Response) bool {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && (media == "application/json" || strings.HasSuffix(media, "+json"))
}

// checkJSON is the error of an answer that is not JSON.
func checkJSON(method, path string, r *http.Response) error {
	if isJSON(r) {
		return nil
	}
	return fmt.Errorf("%s %s: the answer is %q and not JSON; see that the URL is OpenDaylight's, and not that of another server or a proxy's page",
		method, path, r.Header.Get("Content-Type"))
}

// errTooLong is why an answer was not read to its end.
var errTooLong = errors.New("the answer is longer than is read of one")

// bounded reads a body up to a bound, and fails beyond.
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
