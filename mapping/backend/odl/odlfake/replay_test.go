package odlfake_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/odlfake"
)

// exchange is a recorded request to a real controller, with its answer.
type exchange struct {
	Name        string          `json:"name"`
	Method      string          `json:"method"`
	Path        string          `json:"path"`
	Accept      string          `json:"accept"`
	ContentType string          `json:"contentType"`
	Body        json.RawMessage `json:"body"`
	Status      int             `json:"status"`
	Type        string          `json:"type"`
	Location    string          `json:"location"`
	Answer      json.RawMessage `json:"answer"`
}

// recordings holds the files with the release of each controller. Data that a controller had
// before matters only if an answer shows it.
var recordings = map[string]struct {
	release odlfake.Release
	before  func(*odlfake.Controller)
}{
	"oxygen-draft02.jsonl": {odlfake.Oxygen, asOxygenWas},
	"oxygen-rfc8040.jsonl": {odlfake.Oxygen, asOxygenWas},
	"neon-draft02.jsonl":   {odlfake.Neon, func(*odlfake.Controller) {}},
	"neon-rfc8040.jsonl":   {odlfake.Neon, func(*odlfake.Controller) {}},
}

// asOxygenWas writes the entries that Oxygen's own renderer had written.
func asOxygenWas(c *odlfake.Controller) {
	c.Set("pod:coe", "pods", "8f2a6d5e-0000-4000-8000-000000000001", map[string]any{"uid": "8f2a6d5e-0000-4000-8000-000000000001"})
	c.Set("elan:elan-instances", "elan-instance", "192.168.33.12:default", map[string]any{
		"elan-instance-name": "192.168.33.12:default", "segmentation-id": 7, "segment-type": "elan:segment-type-vxlan", "external": false,
	})
	for _, top := range []string{"elan:elan-interfaces", "ietf-interfaces:interfaces", "l3vpn:vpn-interfaces", "l3vpn:vpn-instances"} {
		c.Set(top, "x", "x", map[string]any{})
	}
}

// skipped lists exchanges that the fake does not support, with the reason.
func skipped(x exchange) string {
	_, query, _ := strings.Cut(x.Path, "?")
	switch {
	case !slices.Contains([]string{http.MethodGet, http.MethodHead, http.MethodPut, http.MethodPost, http.MethodDelete}, x.Method):
		return "a method that the backend does not use"
	case query != "" && query != "content=config":
		return "a query that the backend does not use"
	case strings.Contains(x.ContentType, "xml"), strings.Contains(x.Accept, "xml"), x.Accept == "text/html":
		return "XML and HTML are not used"
	case strings.HasPrefix(x.Path, "/restconf/operational"):
		return "the operational datastore is not used"
	case strings.HasSuffix(x.Path, "/name"), strings.HasSuffix(x.Path, "/external"):
		return "leaves are not read"
	case strings.HasSuffix(x.Name, "-modules"), strings.HasSuffix(x.Name, "-yang-library"):
		return "was cut out of the recording"
	}
	return ""
}

// TestAsRecorded sends the recorded requests: the fake answers like the real controllers.
func TestAsRecorded(t *testing.T) {
	for file, recording := range recordings {
		t.Run(file, func(t *testing.T) {
			c, err := odlfake.New(recording.release)
			require.NoError(t, err)
			recording.before(c)
			server := httptest.NewServer(c)
			t.Cleanup(server.Close)
			replayed := 0
			for _, x := range read(t, file) {
				if skipped(x) == "" {
					replayed++
					t.Run(x.Name, func(t *testing.T) { replay(t, server.URL, x) })
				}
			}
			require.Greater(t, replayed, 45)
		})
	}
}

func read(t *testing.T, file string) (all []exchange) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "restconf", "testdata", file))
	require.NoError(t, err)
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var x exchange
		require.NoError(t, json.Unmarshal(lines.Bytes(), &x))
		all = append(all, x)
	}
	require.NoError(t, lines.Err())
	return all
}

func replay(t *testing.T, url string, x exchange) {
	body := x.Body
	var verbatim string
	if json.Unmarshal(body, &verbatim) == nil {
		body = json.RawMessage(verbatim) // not a JSON object
	}
	r, err := http.NewRequestWithContext(t.Context(), x.Method, url+x.Path, bytes.NewReader(body))
	require.NoError(t, err)
	if !strings.Contains(x.Name, "-auth") {
		r.SetBasicAuth(odlfake.User, odlfake.Password)
	}
	for name, value := range map[string]string{"Accept": x.Accept, "Content-Type": x.ContentType} {
		if value != "" {
			r.Header.Set(name, value)
		}
	}
	response, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	require.NoError(t, err)

	require.Equal(t, x.Status, response.StatusCode, "%s", answer)
	if x.Status != http.StatusNotAcceptable {
		require.Equal(t, x.Type, response.Header.Get("Content-Type"))
	}
	if x.Location != "" {
		_, path, _ := strings.Cut(x.Location, "8181")
		require.Equal(t, url+path, response.Header.Get("Location"))
	}
	if x.Answer != nil && x.Answer[0] == '{' {
		require.Equal(t, comparable(t, x, x.Answer), comparable(t, x, answer))
	}
}

// comparable returns the part of an answer that must be equal: all except what Netvirt adds
// later, and the text of errors. For a container that others had written to, only its name.
func comparable(t *testing.T, x exchange, answer []byte) any {
	var value map[string]any
	require.NoError(t, json.Unmarshal(answer, &value), "%s", answer)
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for _, name := range []string{"mac-timeout", "elan-tag", "error-message", "error-info", "error-type"} {
				delete(v, name)
			}
			for _, inner := range v {
				walk(inner)
			}
		case []any:
			for _, inner := range v {
				walk(inner)
			}
		}
	}
	walk(value)
	for name, content := range value {
		if container, ok := content.(map[string]any); ok && strings.Contains(x.Name, "get") && len(container) > 0 && strings.HasPrefix(t.Name(), "TestAsRecorded/oxygen") && name != "errors" {
			value[name] = nil
		}
	}
	return value
}
