package child

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
)

// tick is the unit of processor times in /proc, which is fixed on Linux.
const tick = 10 * time.Millisecond

// ProcessorTime returns the processor time of a process since its start, and of the children that it has waited for.
func ProcessorTime(pid int) (own, children time.Duration, err error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0, 0, fmt.Errorf("read the processor time of process %d: %w", pid, err)
	}
	stat, err := p.Stat()
	if err != nil {
		return 0, 0, fmt.Errorf("read the processor time of process %d: %w", pid, err)
	}
	return time.Duration(stat.UTime+stat.STime) * tick, time.Duration(stat.CUTime+stat.CSTime) * tick, nil
}

// Memory returns a figure of the memory of a process in bytes, as /proc names it: "VmRSS:" is the resident memory, and "VmHWM:" its
// peak.
func Memory(pid int, name string) (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("read the memory of process %d: %w", pid, err)
	}
	for line := range strings.Lines(string(status)) {
		value, found := strings.CutPrefix(line, name)
		if !found {
			continue
		}
		kilobytes, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 64)
		if err != nil {
			return 0, fmt.Errorf("read the memory of process %d: %w", pid, err)
		}
		return kilobytes * 1024, nil
	}
	return 0, fmt.Errorf("read the memory of process %d: the kernel does not report %s", pid, name)
}
