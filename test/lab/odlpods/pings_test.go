package odlpods

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The time until the first answer is a gap, too.
func TestGapAtTheStart(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	require.NoError(t, os.WriteFile(log, []byte("[1000030.5] 64 bytes from 10.42.0.10: icmp_seq=300 ttl=63 time=1 ms\n[1000030.6] 64 bytes from 10.42.0.10: icmp_seq=301 ttl=63 time=1 ms\n"), 0o600))
	p := &Pings{log: log, begun: time.Unix(1000000, 0)}
	got, err := p.answers(time.Unix(1000031, 0))
	require.NoError(t, err)
	require.Equal(t, 301, got.Sent)
	require.Equal(t, 299, got.Lost)
	require.InDelta(t, 30.5, got.Gap.Seconds(), 0.01)
}
