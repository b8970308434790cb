package mapping_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/mapping"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/test/lab/synth"
)

// BenchmarkMapDiff changes one pod of a namespace, maps the namespace and computes the
// difference from the model before: with a Mapper and DiffParts, as reconcile.Loop does, and
// for comparison without them.
func BenchmarkMapDiff(b *testing.B) {
	settings := mapping.Settings{Isolation: mapping.IsolationNone, DHCPLeaseTime: 3600}
	for _, pods := range []int{50, 250, 10_000} {
		b.Run(fmt.Sprintf("pods=%d", pods), func(b *testing.B) {
			benchmarkMapDiff(b, pods, mapping.NewMapper(nil, settings).Map, netvirt.DiffParts)
		})
		b.Run(fmt.Sprintf("whole/pods=%d", pods), func(b *testing.B) {
			whole := func(v coe.View) (netvirt.Model, []coe.Problem) { return mapping.Map(v, settings) }
			benchmarkMapDiff(b, pods, whole, netvirt.Diff)
		})
	}
}

func benchmarkMapDiff[M any](b *testing.B, pods int, mapOf func(coe.View) (M, []coe.Problem), diff func(have, want M) []netvirt.Change) {
	v := synth.View(pods)
	have, problems := mapOf(v)
	require.Empty(b, problems)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		synth.ChangePod(v, i)
		want, _ := mapOf(v)
		if changes := diff(have, want); len(changes) != 2 {
			b.Fatalf("%d changes, want 2", len(changes))
		}
		have = want
	}
}
