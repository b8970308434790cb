package main

import (
	"context"
	"fmt"
	"time"

	"github.com/coe-bridge/coe-bridge/mapping"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/test/bench/figures"
	"github.com/coe-bridge/coe-bridge/test/lab/synth"
)

// settings are the settings of all measured bridges.
var settings = mapping.Settings{Isolation: mapping.IsolationNone, DHCPLeaseTime: 3600}

// measureMap maps a namespace after one of its pods has changed, and compares the result with the
// model before, as the loop does. It repeats this.
func measureMap(_ context.Context, b *bench) ([]figures.Figure, error) {
	var all []figures.Figure
	for _, c := range []struct {
		pods   int
		repeat int
		bound  time.Duration
	}{{50, 1000, 100 * time.Microsecond}, {10_000, 10, 30 * time.Millisecond}} {
		b.Say("mapping a namespace of %d pods", c.pods)
		v := synth.View(c.pods)
		m := mapping.NewMapper(nil, settings)
		have, problems := m.Map(v)
		if len(problems) > 0 {
			return nil, fmt.Errorf("map %d pods: %s", c.pods, problems[0])
		}
		step := 0
		took := fastest(c.repeat, func() {
			synth.ChangePod(v, step)
			want, _ := m.Map(v)
			netvirt.DiffParts(have, want)
			have = want
			step++
		})
		name := fmt.Sprintf("Map and Diff after one change, namespace of %d pods", c.pods)
		all = append(all, figures.AtMost(name, took, c.bound))
	}
	return all, nil
}

// mapRounds is the number of measurements of the mapping.
const mapRounds = 10

// fastest runs several rounds of repeated calls, and returns the duration of one call in the
// fastest round. Other programs on the machine only make rounds slower.
func fastest(repeat int, do func()) time.Duration {
	var best time.Duration
	for n := range mapRounds {
		begun := time.Now()
		for range repeat {
			do()
		}
		if took := time.Since(begun) / time.Duration(repeat); n == 0 || took < best {
			best = took
		}
	}
	return best
}
