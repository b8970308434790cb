package main

import "time"

// comparison is a duration beside that of what it is compared with.
type comparison struct{ ours, bare time.Duration }

// rate is how much ours gets done while bare does 1.
func (c comparison) rate() float64 { return float64(c.bare) / float64(c.ours) }
