package client

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestRefusedEdit: the error of a YANG Patch has the messages of its edits.
func TestRefusedEdit(t *testing.T) {
	c := New(Config{Server: answering(t, http.StatusBadRequest, `{"ietf-yang-patch:yang-patch-status": {"patch-id": "x", "edit-status": {"edit": [
		{"edit-id": "b", "errors": {"error": [{"error-type": "protocol", "error-tag": "invalid-value", "error-path": "/b", "error-message": "want an integer in 8..30"}]}},
		{"edit-id": "a", "errors": {"error": [{"error-type": "protocol", "error-tag": "data-exists", "error-path": "/a"}]}}]}}}`), Timeout: time.Minute})
	err := c.Patch(t.Context(), "", "", false, []Edit{{ID: "a", Operation: "create", Target: "/a"}})
	require.EqualError(t, err, "/a: data-exists; /b: want an integer in 8..30")
	c = New(Config{Server: answering(t, http.StatusConflict, `{"ietf-yang-patch:yang-patch-status": {"patch-id": "x", "edit-status": {"edit": [{"edit-id": "a"}]}}}`)})
	require.EqualError(t, c.Patch(t.Context(), "", "", false, nil), "409 Conflict")
}

// TestNoAnswer: the error of a bridge that does not answer says how long the client has waited.
func TestNoAnswer(t *testing.T) {
	silent := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-silent }))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(silent) }) // before server.Close, which waits for the request
	c := New(Config{Server: server.URL, Timeout: 50 * time.Millisecond})
	want := "ask " + server.URL + ": no answer within 50ms; is the bridge running there? (--server)"
	require.EqualError(t, c.Get(t.Context(), Confirmed, "coe-status:status", nil), want)
	_, err := c.Data(t.Context(), "/pod:coe")
	require.EqualError(t, err, want)
}

// answering returns the URL of a server that gives one answer to every request.
func answering(t *testing.T, code int, body string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(server.Close)
	return server.URL
}
