package wire_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/odl/wire"
)

// TestWire: a request is recorded with its answer or without one, unless it was not sent.
func TestWire(t *testing.T) {
	controller := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "lost") {
			panic(http.ErrAbortHandler)
		}
		out.WriteHeader(http.StatusConflict)
	}))
	defer controller.Close()
	w := wire.New(controller.URL, &http.Transport{})
	defer w.Close()
	before := httptest.NewServer(w)
	defer before.Close()
	put := func(path string) (status int) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, before.URL+path, strings.NewReader("entry "+path))
		require.NoError(t, err)
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			return 0
		}
		require.NoError(t, answer.Body.Close())
		return answer.StatusCode
	}
	require.Equal(t, http.StatusConflict, put("/a%3Ab"))
	require.Zero(t, put("/lost"))
	w.Cut(true)
	require.Zero(t, put("/cut"))
	w.Cut(false)
	require.Equal(t, http.StatusConflict, put("/c"))
	controller.Close()
	require.Zero(t, put("/down"))

	type said struct {
		path, body string
		status     int
	}
	var got []said
	for _, q := range w.Seen() {
		require.True(t, q.Writes())
		require.False(t, q.Answered.Before(q.Begun))
		got = append(got, said{q.Path, q.Body, q.Status})
	}
	require.Equal(t, []said{
		{"/a%3Ab", "entry /a%3Ab", http.StatusConflict}, {"/lost", "entry /lost", 0}, {"/c", "entry /c", http.StatusConflict},
	}, got)
	found, err := w.Await(t.Context(), 1, 1, "entry /c")
	require.NoError(t, err)
	require.Len(t, found, 1)
}
