package main

import "time"

// comparison has a duration of the bridge and a duration of its reference.
type comparison struct{ ours, bare time.Duration }

// rate returns the rate of ours, where the rate of bare is 1.
func (c comparison) rate() float64 { return float64(c.bare) / float64(c.ours) }
