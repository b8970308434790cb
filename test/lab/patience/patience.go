// Package patience has the times that tests wait. A test must hold on a machine at an eighth of the speed: what must come has Patience,
// and what must not come is observed for Brief.
package patience

import "time"

// Patience is how long a test waits for an event that must come. Benchmarks measure speed, tests do not.
const Patience = 2 * time.Minute

// Brief is how long a test observes that an event does not come. A slow machine makes such a test pass, never fail.
const Brief = 50 * time.Millisecond
