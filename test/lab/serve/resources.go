package serve

import (
	"context"
	"time"

	"github.com/coe-bridge/coe-bridge/test/lab/child"
)

// settle is the time after a start in which a bridge returns the memory of the start.
const settle = 5 * time.Second

// PID returns the process ID of the bridge.
func (p *Process) PID() int { return p.child.PID() }

// Resident returns the resident memory of the bridge in bytes.
func (p *Process) Resident() (float64, error) { return child.Memory(p.child.PID(), "VmRSS:") }

// Settled returns the resident memory of a bridge in bytes after its start has settled, and the peak.
func (p *Process) Settled(ctx context.Context) (resident, peak float64, err error) {
	select {
	case <-ctx.Done():
		return 0, 0, ctx.Err()
	case <-time.After(settle):
	}
	if resident, err = p.Resident(); err == nil {
		peak, err = child.Memory(p.child.PID(), "VmHWM:")
	}
	return resident, peak, err
}

// ProcessorTime returns the processor time of the bridge since its start.
func (p *Process) ProcessorTime() (time.Duration, error) {
	own, _, err := child.ProcessorTime(p.child.PID())
	return own, err
}
