package remote

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping/status"
)

func TestStateOfPod(t *testing.T) {
	for _, c := range []struct {
		pod  status.Pod
		want string
	}{
		{status.Pod{Reached: "confirmed"}, "confirmed"},
		{status.Pod{Reached: "installed"}, "confirmed"},
		{status.Pod{Reached: "confirmed", Missing: "installed"}, "confirmed"},
		{status.Pod{Reached: "translated", Missing: "bound"}, "confirmed"},
		{status.Pod{Reached: "source", Missing: "address"}, "pending"},
		{status.Pod{Reached: "written", Missing: "confirmed"}, "programmed"},
		{status.Pod{Reached: "source"}, "host network or finished"},
	} {
		require.Equal(t, c.want, podState(&c.pod, nil), c.pod)
	}
	require.Equal(t, "problem", podState(&status.Pod{Reached: "source", Missing: "address"}, []coe.Reason{coe.NoNode}))
}
