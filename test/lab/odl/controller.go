package odl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// The administrator of a new controller.
const (
	User     = "admin"
	Password = "admin"
)

// Ports of a controller.
const (
	restPort  = 8181
	ovsdbPort = 6640
)

// startTimeout bounds a start. On an idle machine a controller needs half a minute, on a busy one ten times as long.
const startTimeout = 12 * time.Minute

// Config configures a controller.
type Config struct {
	// Lab is the lab of the controller, with switches only. The controller ends with it.
	Lab     *ovnhost.Lab
	Release Release
	// Progress receives progress reports.
	Progress io.Writer
}

// Controller is a controller of a lab. Its methods must not be called concurrently, except Request.
type Controller struct {
	// Lab is the lab of the controller.
	Lab *ovnhost.Lab
	// URL is its URL for this process, as long as the process lives, also after restarts. Connections that the controller
	// does not accept are reset.
	URL string
	// Inside is its URL for programs in the lab's central namespace and on its hosts.
	Inside string

	site
	release  Release
	versions versions
	progress io.Writer
	base     base
	process  *ovnhost.Process
	relay    *relay
	client   *http.Client
}

// Start installs a release if necessary, starts a controller, and returns when it is ready: all its bundles are up, and both
// dialects serve data.
func Start(ctx context.Context, cfg Config) (*Controller, error) {
	c, err := start(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("start OpenDaylight %s: %w", cfg.Release, err)
	}
	return c, nil
}

func start(ctx context.Context, cfg Config) (*Controller, error) {
	installed, err := Install(ctx, cfg.Release, cfg.Progress)
	if err != nil {
		return nil, err
	}
	c, err := newController(cfg, installed, alone)
	if err != nil {
		return nil, err
	}
	if err := c.launch(ctx, installed); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// newController returns a controller that does not run yet.
func newController(cfg Config, installed Installation, at site) (*Controller, error) {
	c := &Controller{
		Lab: cfg.Lab, Inside: fmt.Sprintf("http://%s:%d", at.address, restPort),
		site: at, release: cfg.Release, progress: cfg.Progress, client: &http.Client{Timeout: requestTimeout},
	}
	var err error
	if c.versions, err = cfg.Release.versions(); err != nil {
		return nil, err
	}
	if c.base, err = newBase(cfg.Lab, installed, at); err != nil {
		return nil, err
	}
	if c.relay, err = c.newRelay(); err != nil {
		return nil, errors.Join(err, c.base.remove())
	}
	c.URL = c.relay.url()
	return c, nil
}

// launch starts the process for the first time.
func (c *Controller) launch(ctx context.Context, installed Installation) (err error) {
	c.process, err = c.Lab.Launch(ctx, ovnhost.Command{
		Name: c.name, Pod: c.namespace,
		Argv: c.command(),
		Env: []string{
			"JAVA_HOME=" + installed.Java, "JAVA_MIN_MEM=256m", "JAVA_MAX_MEM=" + c.heap,
			"EXTRA_JAVA_OPTS=-Djava.awt.headless=true -Djava.security.egd=file:/dev/./urandom" + c.options,
		},
	})
	if err != nil {
		return err
	}
	if err = c.awaitReady(ctx); errors.Is(err, errHopeless) {
		err = c.startAgain(ctx)
	}
	return err
}

// startAgain restarts a controller whose start has failed: on a busy machine a bundle may have timed out waiting for another.
func (c *Controller) startAgain(ctx context.Context) error {
	fmt.Fprintf(c.progress, "OpenDaylight %s has started in vain, and is started again\n", c.title())
	if err := c.Kill(); err != nil {
		return err
	}
	return c.startOnce(ctx)
}

func (c *Controller) startOnce(ctx context.Context) error {
	if err := c.base.clear(); err != nil {
		return err
	}
	if err := c.process.Start(ctx); err != nil {
		return err
	}
	return c.awaitReady(ctx)
}

// Start starts a controller that was stopped or killed, with its datastore.
func (c *Controller) Start(ctx context.Context) error {
	err := c.startOnce(ctx)
	if errors.Is(err, errHopeless) {
		err = c.startAgain(ctx)
	}
	if err != nil {
		return fmt.Errorf("start OpenDaylight %s: %w", c.title(), err)
	}
	return nil
}

// Stop shuts the controller down, and kills it after a time limit.
func (c *Controller) Stop() error {
	if err := c.process.Terminate(); err != nil {
		return c.process.Kill()
	}
	return nil
}

// Kill ends the controller with SIGKILL. Unwritten data is lost.
func (c *Controller) Kill() error { return c.process.Kill() }

// Process returns the controller's process, for signals.
func (c *Controller) Process() *ovnhost.Process { return c.process }

// Restart kills the controller, and starts it with its datastore.
func (c *Controller) Restart(ctx context.Context) error {
	if err := c.Kill(); err != nil {
		return err
	}
	return c.Start(ctx)
}

// Wipe kills the controller, and starts it with an empty datastore.
func (c *Controller) Wipe(ctx context.Context) error {
	if err := c.Kill(); err != nil {
		return err
	}
	if err := c.base.wipe(); err != nil {
		return err
	}
	return c.Start(ctx)
}

// Close kills the controller, and removes its data.
func (c *Controller) Close() error {
	errs := []error{c.relay.close()}
	if c.process != nil {
		errs = append(errs, c.process.Kill())
	}
	return errors.Join(append(errs, c.base.remove())...)
}

// Log returns the path of the controller's log.
func (c *Controller) Log() string { return c.base.path(logFile) }

// log returns the controller's log since its last start; empty if there is none. A full log is renamed to karaf.log.1, .2, and so on.
func (c *Controller) log() ([]byte, error) {
	full, err := filepath.Glob(c.Log() + rotated)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(full, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
	var all []byte
	for _, path := range append(full, c.Log()) {
		text, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("read log: %w", err)
		}
		all = append(all, text...)
	}
	return all, nil
}
