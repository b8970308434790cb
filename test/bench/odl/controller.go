package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/coe-bridge/coe-bridge/test/lab/child"
	realodl "github.com/coe-bridge/coe-bridge/test/lab/odl"
	"github.com/coe-bridge/coe-bridge/test/lab/odl/wire"
)

// parallel is the number of requests that the backend, and so a bare client, sends at the same time.
const parallel = 8

// bareTimeout bounds a request of a bare client.
const bareTimeout = 2 * time.Minute

// controller is the measured OpenDaylight, with a bare client.
type controller struct {
	*realodl.Controller
	client *http.Client
	used   bool // it may have data from a write since its start
}

func newController(c *realodl.Controller) *controller {
	return &controller{Controller: c, client: &http.Client{Timeout: bareTimeout, Transport: &http.Transport{MaxIdleConnsPerHost: parallel}}}
}

// send sends a request to the controller at a URL, and returns the answer.
func (c *controller) send(ctx context.Context, base string, q wire.Request) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, q.Method, base+q.Path, strings.NewReader(q.Body))
	if err != nil {
		return nil, err
	}
	r.SetBasicAuth(realodl.User, realodl.Password)
	r.Header.Set("Accept", "application/yang.api+json, application/json")
	if q.Body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	response, err := c.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode/100 != 2 {
		err = &statusError{q, response.StatusCode, answer}
	}
	return answer, err
}

// statusError is an answer that is not a success.
type statusError struct {
	to     wire.Request
	status int
	answer []byte
}

func (e *statusError) Error() string {
	return fmt.Sprintf("%s %s: %d: %.300s", e.to.Method, e.to.Path, e.status, e.answer)
}

// fresh restarts the controller with an empty datastore if anything was written since the last
// restart. Netvirt needs longer to delete thousands of interfaces than to restart.
func (c *controller) fresh(ctx context.Context) error {
	if c.used {
		if err := c.Wipe(ctx); err != nil {
			return err
		}
	}
	c.used = true
	return c.settle(ctx)
}

const (
	config = "/restconf/config/"

	// The controller has finished when it uses less than this share of one processor for this
	// time.
	quietShare  = 0.15
	quietWindow = time.Second
	quietRows   = 2

	settleTimeout = 10 * time.Minute
)

// settle waits until the controller has finished the work that follows from the writes.
func (c *controller) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	tick := time.NewTicker(quietWindow)
	defer tick.Stop()
	before, err := c.processorTime()
	for quiet := 0; quiet < quietRows && err == nil; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for the controller to finish: %w", ctx.Err())
		}
		var now time.Duration
		now, err = c.processorTime()
		if now-before < time.Duration(quietShare*float64(quietWindow)) {
			quiet++
		} else {
			quiet = 0
		}
		before = now
	}
	return err
}

// processorTime returns the processor time of the controller.
func (c *controller) processorTime() (time.Duration, error) {
	pid, err := c.Process().PID()
	if err != nil {
		return 0, err
	}
	own, _, err := child.ProcessorTime(pid)
	return own, err
}
