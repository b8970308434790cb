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

	"github.com/coe-bridge/coe-bridge/test/child"
)

// Run runs a program that takes long and says to progress, under a title, how it gets on.
// An error has the end of what the program has printed. When ctx ends the program is told
// to end, and killed when it does not.
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
	// errorLines are as many as an error has of what a program has printed.
	errorLines = 20
	// endTimeout bounds how long a program may take to end when it is told to.
	endTimeout = 5 * time.Second
)

// output keeps what a program prints.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

// last are the last lines.
func (o *output) last(n int) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := strings.Split(strings.TrimSpace(o.text.String()), "\n")
	return strings.Join(all[max(0, len(all)-n):], "\n")
}
