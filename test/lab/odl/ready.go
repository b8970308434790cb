package odl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/coe-bridge/coe-bridge/test/lab/cache"
)

// readyInterval is the interval of checks whether a controller is ready.
const readyInterval = 500 * time.Millisecond

// allUp is in a controller's log when all its bundles have started.
const allUp = "System ready;"

// hopeless are texts in a controller's log after which it will not become ready: conflicting
// features, or a bundle that another needs was too slow.
var hopeless = []string{"Error installing boot features", "Failed, some bundles did not start"}

var errHopeless = errors.New("not all of its bundles can start")

// Limits of the excerpts of a controller's logs.
const (
	maxPrinted = 1000 // bytes
	logLines   = 15
	worthShow  = " | ERROR | "
)

// awaitReady returns when the controller is ready, has ended, or takes too long.
func (c *Controller) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	start := time.Now()
	tick, report := time.NewTicker(readyInterval), time.NewTicker(cache.ReportInterval)
	defer tick.Stop()
	defer report.Stop()
	for {
		err := c.ready(ctx)
		if err == nil {
			fmt.Fprintf(c.progress, "OpenDaylight %s is ready after %s\n", c.title(), time.Since(start).Round(time.Second))
			return nil
		}
		if _, ended := c.process.PID(); ended != nil || errors.Is(err, errHopeless) {
			return fmt.Errorf("%w; it printed: %s; %s", errors.Join(ended, err), c.printed(), c.LastErrors())
		}
		select {
		case <-tick.C:
		case <-report.C:
			fmt.Fprintf(c.progress, "starting OpenDaylight %s: %s, %s\n", c.title(), time.Since(start).Round(time.Second), err)
		case <-ctx.Done():
			return fmt.Errorf("%w (%w); %s", ctx.Err(), err, c.LastErrors())
		}
	}
}

// ready returns nil if the controller is ready. Its earlier answers are not reliable.
func (c *Controller) ready(ctx context.Context) error {
	log, err := c.log()
	if err != nil {
		return err
	}
	for _, sign := range hopeless {
		if bytes.Contains(log, []byte(sign)) {
			return errHopeless
		}
	}
	if !bytes.Contains(log, []byte(allUp)) {
		return errors.New("not all of its bundles have started")
	}
	for _, path := range []string{"/restconf/modules/module/" + c.versions.probe, "/rests/data/ietf-yang-library:modules-state"} {
		if err := c.answers(ctx, path); err != nil {
			return err
		}
	}
	return nil
}

func (c *Controller) answers(ctx context.Context, path string) error {
	status, _, err := c.Request(ctx, http.MethodGet, path, "")
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("it answers %d to %s", status, path)
	}
	return err
}

// printed returns the end of what the process has printed.
func (c *Controller) printed() string {
	text, err := os.ReadFile(filepath.Join(c.Lab.Logs(), c.name+".log"))
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(text[max(0, len(text)-maxPrinted):]))
}

// LastErrors returns the last errors of the controller's log, for people.
func (c *Controller) LastErrors() string {
	log, err := c.log()
	if err != nil {
		return err.Error()
	}
	var all []string
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, worthShow) {
			all = append(all, strings.TrimRight(line, "\n"))
		}
	}
	return fmt.Sprintf("the last errors of %s:\n%s", c.Log(), strings.Join(all[max(0, len(all)-logLines):], "\n"))
}
