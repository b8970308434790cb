package cache

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/coe-bridge/coe-bridge/test/lab/child"
)

// Run runs a slow program, and reports to progress with a title. An error includes the end of the
// program's output. When ctx ends, the program is terminated, and killed if necessary.
func Run(ctx context.Context, progress io.Writer, title string, cmd *exec.Cmd) error {
	said := &output{}
	cmd.Stdout, cmd.Stderr = said, said
	process, err := child.Start(cmd)
	if err != nil {
		return fmt.Errorf("%s: %w", title, err)
	}
	start := time.Now()
	tick := time.NewTicker(ReportInterval)
	defer tick.Stop()
	for {
		select {
		case <-process.Done():
			if err := process.Wait(endTimeout); err != nil {
				return fmt.Errorf("%s: run %s: %w:\n%s", title, cmd, err, said.last(errorLines))
			}
			return nil
		case <-tick.C:
			fmt.Fprintf(progress, "%s: %s, now %s\n", title, time.Since(start).Round(time.Second), said.last(1))
		case <-ctx.Done():
			_ = process.Signal(syscall.SIGTERM) // it may have ended
			_ = process.Wait(endTimeout)
			return fmt.Errorf("%s: %w", title, ctx.Err())
		}
	}
}

const (
	// errorLines is the number of lines of output in an error.
	errorLines = 20
	// endTimeout is the time for a program to terminate.
	endTimeout = 5 * time.Second
)

// output keeps the output of a program.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

// last returns the last lines.
func (o *output) last(n int) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := strings.Split(strings.TrimSpace(o.text.String()), "\n")
	return strings.Join(all[max(0, len(all)-n):], "\n")
}
