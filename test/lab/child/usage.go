package child

import (
	"fmt"
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
