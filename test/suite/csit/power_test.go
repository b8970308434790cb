package csit

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// power has functions for the suites that kill and start programs, by path.
type power map[string]func() error

// installPower serves the functions to the suites until the test ends. It returns a function that
// makes the shell command for a path.
func installPower(t *testing.T, p power) (command func(path string) string) {
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	return func(path string) string { return "curl -sSf -X POST " + server.URL + path }
}

func (p power) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	do, found := p[r.URL.Path]
	if !found {
		http.NotFound(w, r)
		return
	}
	if err := do(); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}
