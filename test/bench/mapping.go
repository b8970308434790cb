package main

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/coe-bridge/coe-bridge/mapping"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/test/synth"
)

// settings are those of every bridge that is measured.
var settings = mapping.Settings{Isolation: mapping.IsolationNone, DHCPLeaseTime: 3600}

// measureMap maps a namespace in which one pod changed, and compares the result
// with the model before.
func measureMap(_ context.Context, b *bench) ([]figure, error) {
	var figures []figure
	for _, c := range []struct {
		pods  int
		bound time.Duration
	}{{50, 100 * time.Microsecond}, {10_000, 30 * time.Millisecond}} {
		b.say("mapping a namespace of %d pods", c.pods)
		v := synth.View(c.pods)
		have, problems := mapping.Map(v, settings)
		if len(problems) > 0 {
			return nil, fmt.Errorf("map %d pods: %s", c.pods, problems[0])
		}
		synth.ChangePod(v, c.pods/2)
		result := testing.Benchmark(func(b *testing.B) {
			for b.Loop() {
				want, _ := mapping.Map(v, settings)
				netvirt.Diff(have, want)
			}
		})
		name := fmt.Sprintf("Map and Diff after one change, namespace of %d pods", c.pods)
		figures = append(figures, atMost(name, time.Duration(result.NsPerOp()), c.bound))
	}
	return figures, nil
}
