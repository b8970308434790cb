package remote

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/status"
	"github.com/coe-bridge/coe-bridge/restconf/client"
)

// TestUnconfirmed: the status names each reason once, for any number of scopes and objects
// that the network lacks.
func TestUnconfirmed(t *testing.T) {
	var st status.Status
	require.NoError(t, json.Unmarshal([]byte(`{"scope": [
		{"name": "bank", "unconfirmed": [{"reason": "not plugged in yet", "objects": 5, "example": "interface bank:vault"}]},
		{"name": "shop", "unconfirmed": [
			{"reason": "nothing renders it", "objects": 1, "example": "floating-ip shop shop:web 10.0.0.2"},
			{"reason": "not plugged in yet", "objects": 10, "example": "interface shop:db"}
		]},
		{"name": "web"}
	]}`), &st))
	require.Equal(t, []string{
		"15 objects are not confirmed, as interface bank:vault: not plugged in yet",
		"floating-ip shop shop:web 10.0.0.2 is not confirmed: nothing renders it",
	}, unconfirmed(&st))
}

// TestBackendTrouble: the status says why a backend is not reached, and that the answer of a standby is old.
func TestBackendTrouble(t *testing.T) {
	yes, no := true, false
	for want, b := range map[string]status.Backend{
		"":                                     {Name: "ovn", Connected: &yes, Compared: "1"},
		"\nbackend ovn has not been asked yet": {Name: "ovn"},
		"\nbackend ovn is being read since 2; ask again later":             {Name: "ovn", Comparing: "2"},
		"\nbackend ovn is being read since 2; this is what it had at 1":    {Name: "ovn", Connected: &yes, Compared: "1", Comparing: "2"},
		"\nbackend ovn has not answered since 1: connection refused":       {Name: "ovn", Connected: &no, Since: "1", LastError: "connection refused"},
		"\nbackend ovn has not answered since 1: connection refused again": {Name: "ovn", Connected: &no, Since: "1", LastError: "connection refused again", Comparing: "2"},
	} {
		require.Equal(t, want, backendTrouble(b))
	}
}

// TestStandbyKnowsLess: a standby says so, because only the leader knows why an address cannot be chosen.
func TestStandbyKnowsLess(t *testing.T) {
	require.Empty(t, standbyNote(&status.Status{Leads: true, Leader: "one"}))
	require.Equal(t, "this replica is a standby and does not know all problems; one leads", standbyNote(&status.Status{Leader: "one"}))
	require.Equal(t, "this replica is a standby and does not know all problems; nobody leads", standbyNote(&status.Status{}))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"status": {"leads": false, "leader": "one"}}`))
	}))
	t.Cleanup(server.Close)
	bridge := client.New(client.Config{Server: server.URL, Timeout: time.Minute})
	problems := resource{name: "problems", read: readProblems}
	var out, notes strings.Builder
	require.NoError(t, show(t.Context(), &out, &notes, bridge, problems, "table"))
	require.Equal(t, "no problems\nthis replica is a standby and does not know all problems; one leads\n", out.String())
	require.Empty(t, notes.String())
	out.Reset()
	require.NoError(t, show(t.Context(), &out, &notes, bridge, problems, "json"))
	require.Equal(t, "[]\n", out.String())
	require.Equal(t, "this replica is a standby and does not know all problems; one leads\n", notes.String())
}
