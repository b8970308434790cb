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
	for _, pods := range []int{50, 10_000} {
		b.Run(fmt.Sprintf("pods=%d", pods), func(b *testing.B) {
			settings := mapping.Settings{Isolation: mapping.IsolationNone, DHCPLeaseTime: 3600}
			v := synth.View(pods)
			have, problems := mapping.Map(v, settings)
			require.Empty(b, problems)
			synth.ChangePod(v, pods/2)
			b.ReportAllocs()
			for b.Loop() {
				want, _ := mapping.Map(v, settings)
				if changes := netvirt.Diff(have, want); len(changes) != 2 {
					b.Fatalf("%d changes, want 2", len(changes))
				}
			}
		})
	}
}
