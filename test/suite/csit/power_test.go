package csit

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// power is a switch that the suites cut the power of something with: paths and what they do.
type power map[string]func() error

// installPower has commands for the suites, each under its path; it ends with the test.
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
