package remote

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping/status"
)

func TestStateOfPod(t *testing.T) {
	for want, p := range map[string]status.Pod{
		"confirmed":                {Reached: "confirmed"},
		"pending":                  {Reached: "source", Missing: "address"},
		"programmed":               {Reached: "written", Missing: "confirmed"},
		"host network or finished": {Reached: "source"},
	} {
		require.Equal(t, want, podState(&p, nil))
	}
	require.Equal(t, "problem", podState(&status.Pod{Reached: "source", Missing: "address"}, []coe.Reason{coe.NoNode}))
}
