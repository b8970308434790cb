package remote

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/status"
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
