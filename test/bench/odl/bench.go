package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/coe-bridge/coe-bridge/mapping/backend/odl"
	"github.com/coe-bridge/coe-bridge/test/bench/figures"
	realodl "github.com/coe-bridge/coe-bridge/test/lab/odl"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
	"github.com/coe-bridge/coe-bridge/test/lab/serve"
	"golang.org/x/crypto/bcrypt"
)

// prefix names the lab that the controller runs in.
const prefix = "benchodl"

// bench has the data that all measurements share.
type bench struct {
	*figures.Workspace
	usersFile  string // of every bridge
	authFile   string // of the controller
	log        *slog.Logger
	lab        *ovnhost.Lab // nil until a measurement needs the controller
	controller *controller
}

func newBench(profile string) (*bench, error) {
	w, err := figures.NewWorkspace(prefix, profile)
	if err != nil {
		return nil, err
	}
	b := &bench{
		Workspace: w, usersFile: w.File("users"), authFile: w.File("auth"),
		log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	if err := b.writeUsers(); err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

func (b *bench) writeUsers() error {
	// The smallest cost, because the check of a password is not measured.
	hash, err := bcrypt.GenerateFromPassword([]byte(serve.Password), bcrypt.MinCost)
	if err != nil {
		return fmt.Errorf("hash the password: %w", err)
	}
	for path, content := range map[string]string{
		b.usersFile: serve.User + ":writer:" + string(hash) + "\n",
		b.authFile:  realodl.User + ":" + realodl.Password + "\n",
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			return fmt.Errorf("write the file of users: %w", err)
		}
	}
	return nil
}

// onController returns a measurement that needs the controller without switches.
func onController(measure func(context.Context, *bench) ([]figures.Figure, error)) func(context.Context, *bench) ([]figures.Figure, error) {
	return func(ctx context.Context, b *bench) ([]figures.Figure, error) {
		if b.lab == nil {
			if err := b.startController(ctx); err != nil {
				return nil, err
			}
		}
		return measure(ctx, b)
	}
}

func (b *bench) startController(ctx context.Context) error {
	if err := ovnhost.CleanupDead(); err != nil {
		return err
	}
	lab, err := ovnhost.Start(ctx, ovnhost.Config{Prefix: prefix, SwitchesOnly: true, Log: b.log})
	if err != nil {
		return err
	}
	b.lab = lab
	c, err := realodl.Start(ctx, realodl.Config{Lab: lab, Release: realodl.Oxygen, Progress: os.Stderr})
	if err != nil {
		return err
	}
	b.controller = newController(c)
	return nil
}

func (b *bench) close() error {
	var errs []error
	if b.controller != nil {
		errs = append(errs, b.controller.Close())
	}
	if b.lab != nil {
		errs = append(errs, b.lab.Close())
	}
	return errors.Join(append(errs, b.Close())...)
}

// backendAt returns the configuration of a backend that uses the controller at a URL.
func (b *bench) backendAt(url string) odl.Config {
	return odl.Config{URLs: url, AuthFile: b.authFile}
}

// comparison has a duration of the bridge and a duration of its reference.
type comparison struct{ ours, bare time.Duration }

// rate returns the rate of ours, where the rate of bare is 1.
func (c comparison) rate() float64 { return float64(c.bare) / float64(c.ours) }

// ratio returns the duration of ours, where the duration of bare is 1.
func (c comparison) ratio() float64 { return float64(c.ours) / float64(c.bare) }

// atMost returns a figure whose bound is a multiple of the duration of bare.
func (c comparison) atMost(name string, bound float64) figures.Figure {
	return figures.Figure{
		Name:     name,
		Measured: fmt.Sprintf("%.2f of what bare requests take (%s, bare %s)", c.ratio(), figures.Short(c.ours), figures.Short(c.bare)),
		Bound:    fmt.Sprintf("at most %g", bound), Within: c.ratio() <= bound,
	}
}
