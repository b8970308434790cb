package serve

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// ticks is the number of ticks per second in /proc (USER_HZ), which is fixed on Linux.
const ticks = 100

// The processor time in user and in system mode in /proc/PID/stat, counted from
// what stands after the command.
const (
	userTime   = 11
	systemTime = 12
)

// settle is how long after a start a bridge has given back what that took.
const settle = 5 * time.Second

// Resident is how many bytes of the bridge are in memory.
func (p *Process) Resident() (float64, error) { return p.memory("VmRSS:") }

// Settled is how many bytes are when a bridge that has started is done with that, and
// how many were at most.
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
	return 0, errors.New("read the bridge's memory: the kernel does not tell")
}

// ProcessorTime is how long the bridge has had a processor since it was started.
func (p *Process) ProcessorTime() (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.child.PID()))
	if err != nil {
		return 0, fmt.Errorf("read the bridge's processor time: %w", err)
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(after)
	if len(fields) <= systemTime {
		return 0, errors.New("read the bridge's processor time: the kernel does not tell")
	}
	var sum time.Duration
	for _, field := range []int{userTime, systemTime} {
		n, err := strconv.Atoi(fields[field])
		if err != nil {
			return 0, fmt.Errorf("read the bridge's processor time: %w", err)
		}
		sum += time.Duration(n) * time.Second / ticks
	}
	return sum, nil
}
