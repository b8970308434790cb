package agent_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// An agent stays below 60 MB on a node with 200 pods, its program included.
func TestMemory(t *testing.T) {
	const pods, turn, most = 200, 50, 60e6
	w := newWorld(t, patient, "host1")
	for begin := 0; begin < pods; begin += turn {
		all := make([]*sandbox, turn)
		for i := range all {
			all[i] = w.pod("host1", begin+i, "web", fmt.Sprintf("pod%d", begin+i))
		}
		w.atOnce(all, func(s *sandbox) error {
			_, err := s.add(t.Context(), invoke{})
			return err
		})
	}
	w.awaitPods("host1", pods)
	resident := w.metric("host1", "process_resident_memory_bytes")
	t.Logf("%.1f MB with %d pods", resident/1e6, pods)
	require.Less(t, resident, most)
}
