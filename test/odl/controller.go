package odl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/coe-bridge/coe-bridge/test/ovnhost"
)

// Who may do everything on a new controller.
const (
	User     = "admin"
	Password = "admin"
)

// Ports of a controller, at ovnhost.Central in the lab's network.
const (
	restPort  = 8181
	ovsdbPort = 6640
)

// startTimeout bounds a start. On a machine of its own a controller takes half a minute, on
// one that is as busy as can be ten times that.
const startTimeout = 12 * time.Minute

// heap bounds what a controller uses of Java's memory.
const heap = "2g"

// Config says which controller to start.
type Config struct {
	// Lab is where it runs, and whose hosts it manages: one of switches only. The
	// controller ends with it.
	Lab     *ovnhost.Lab
	Release Release
	// Progress is told how it gets on, since it takes long.
	Progress io.Writer
}

// Controller is a controller of a lab. Its methods are for one goroutine at a time, but
// for Request.
type Controller struct {
	// Lab is where it runs.
	Lab *ovnhost.Lab
	// URL is where it is reached from this process, for as long as that lives: as it runs,
	// when it was started again too. A connection that it does not take is reset.
	URL string
	// Inside is the same for programs in the lab's central namespace and its hosts.
	Inside string

	release  Release
	versions versions
	progress io.Writer
	base     base
	process  *ovnhost.Process
	relay    *relay
	client   *http.Client
}

// Start installs a release where it is not, starts a controller and returns when it is
// ready: all of its bundles are up and both dialects serve what they know.
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
	c := &Controller{
		Lab: cfg.Lab, Inside: fmt.Sprintf("http://%s:%d", ovnhost.Central, restPort),
		release: cfg.Release, progress: cfg.Progress, client: &http.Client{Timeout: requestTimeout},
	}
	if c.versions, err = cfg.Release.versions(); err != nil {
		return nil, err
	}
	if c.base, err = newBase(cfg.Lab, installed); err != nil {
		return nil, err
	}
	if c.relay, err = c.newRelay(); err != nil {
		return nil, errors.Join(err, c.base.remove())
	}
	c.URL = c.relay.url()
	if err := c.launch(ctx, installed); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// launch starts the process for the first time.
func (c *Controller) launch(ctx context.Context, installed Installation) (err error) {
	c.process, err = c.Lab.Launch(ctx, ovnhost.Command{
		Name: "opendaylight", Pod: ovnhost.CentralNamespace,
		Argv: []string{c.base.path("bin/karaf"), "daemon"},
		Env: []string{
			"JAVA_HOME=" + installed.Java, "JAVA_MIN_MEM=256m", "JAVA_MAX_MEM=" + heap,
			"EXTRA_JAVA_OPTS=-Djava.awt.headless=true -Djava.security.egd=file:/dev/./urandom",
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

// startAgain starts a controller that has started in vain: on a busy machine a bundle may
// have waited too long for another.
func (c *Controller) startAgain(ctx context.Context) error {
	fmt.Fprintf(c.progress, "OpenDaylight %s has started in vain, and is started again\n", c.release)
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

// Start starts a controller that was stopped or killed, with the datastore that it has.
func (c *Controller) Start(ctx context.Context) error {
	err := c.startOnce(ctx)
	if errors.Is(err, errHopeless) {
		err = c.startAgain(ctx)
	}
	if err != nil {
		return fmt.Errorf("start OpenDaylight %s: %w", c.release, err)
	}
	return nil
}

// Stop has the controller end itself, and kills it when that takes too long.
func (c *Controller) Stop() error {
	if err := c.process.Terminate(); err != nil {
		return c.process.Kill()
	}
	return nil
}

// Kill ends the controller with SIGKILL, as Process does. What it had not written is lost.
func (c *Controller) Kill() error { return c.process.Kill() }

// Process is the controller's, for other signals.
func (c *Controller) Process() *ovnhost.Process { return c.process }

// Restart kills the controller and starts it with the datastore that it has.
func (c *Controller) Restart(ctx context.Context) error {
	if err := c.Kill(); err != nil {
		return err
	}
	return c.Start(ctx)
}

// Wipe kills the controller and starts it with an empty datastore.
func (c *Controller) Wipe(ctx context.Context) error {
	if err := c.Kill(); err != nil {
		return err
	}
	if err := c.base.wipe(); err != nil {
		return err
	}
	return c.Start(ctx)
}

// Close kills the controller and removes what it keeps.
func (c *Controller) Close() error {
	errs := []error{c.relay.close()}
	if c.process != nil {
		errs = append(errs, c.process.Kill())
	}
	return errors.Join(append(errs, c.base.remove())...)
}

// Log is the path of the controller's log.
func (c *Controller) Log() string { return c.base.path(logFile) }

// log is what the controller has said since it was started; empty when it did not.
func (c *Controller) log() ([]byte, error) {
	text, err := os.ReadFile(c.Log())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("read log: %w", err)
	}
	return text, nil
}
