package mapping_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/test/synth"
)

// BenchmarkMapDiff maps a namespace after one pod changed and compares the
// result with the model before.
func BenchmarkMapDiff(b *testing.B) {
	for _, pods := range []int{50, 250, 10_000} {
		b.Run(fmt.Sprintf("pods=%d", pods), func(b *testing.B) {
			settings := mapping.Settings{Isolation: mapping.IsolationNone, DHCPLeaseTime: 3600}
			v := synth.View(pods)
			m := mapping.NewMapper(nil, settings)
			have, problems := m.Map(v)
			require.Empty(b, problems)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				synth.ChangePod(v, i)
				want, _ := m.Map(v)
				if changes := netvirt.DiffParts(have, want); len(changes) != 2 {
					b.Fatalf("%d changes, want 2", len(changes))
				}
				have = want
			}
		})
	}
}
