package serve

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/coe-bridge/coe-bridge/test/lab/child"
)

// settle is the time after a start in which a bridge returns the memory of the start.
const settle = 5 * time.Second

// Resident returns the resident memory of the bridge in bytes.
func (p *Process) Resident() (float64, error) { return p.memory("VmRSS:") }

// Settled returns the resident memory of a bridge in bytes after its start has settled, and the peak.
func (p *Process) Settled(ctx context.Context) (resident, peak float64, err error) {
	select {
	case <-ctx.Done():
		return 0, 0, ctx.Err()
	case <-time.After(settle):
	}
	if resident, err = p.Resident(); err == nil {
		peak, err = p.memory("VmHWM:")
	}
	return resident, peak, err
}

func (p *Process) memory(name string) (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.child.PID()))
	if err != nil {
		return 0, fmt.Errorf("read the bridge's memory: %w", err)
	}
	for line := range strings.Lines(string(status)) {
		value, found := strings.CutPrefix(line, name)
		if !found {
			continue
		}
		kilobytes, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 64)
		if err != nil {
			return 0, fmt.Errorf("read the bridge's memory: %w", err)
		}
		return kilobytes * 1024, nil
	}
	return 0, errors.New("read the bridge's memory: the kernel does not report it")
}

// ProcessorTime returns the processor time of the bridge since its start.
func (p *Process) ProcessorTime() (time.Duration, error) {
	own, _, err := child.ProcessorTime(p.child.PID())
	return own, err
}
