package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/pprof"
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
	begun      time.Time
	dir        string // for all files; removed at the end
	usersFile  string // of every bridge
	authFile   string // of the controller
	log        *slog.Logger
	lab        *ovnhost.Lab
	controller *controller
	profile    *os.File // nil: none
}

func newBench(ctx context.Context, profile string) (*bench, error) {
	dir, err := os.MkdirTemp("", prefix)
	if err != nil {
		return nil, fmt.Errorf("make a folder for the measurements: %w", err)
	}
	b := &bench{
		begun: time.Now(), dir: dir, usersFile: filepath.Join(dir, "users"), authFile: filepath.Join(dir, "auth"),
		log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	if err := b.prepare(ctx, profile); err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

func (b *bench) prepare(ctx context.Context, profile string) error {
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
	if err := b.startController(ctx); err != nil {
		return err
	}
	return b.startProfile(profile)
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

func (b *bench) startProfile(path string) (err error) {
	if path == "" {
		return nil
	}
	if b.profile, err = os.Create(path); err == nil {
		err = pprof.StartCPUProfile(b.profile)
	}
	if err != nil {
		return fmt.Errorf("write the profile: %w", err)
	}
	return nil
}

func (b *bench) close() error {
	var errs []error
	if b.profile != nil {
		pprof.StopCPUProfile()
		errs = append(errs, b.profile.Close())
	}
	if b.controller != nil {
		errs = append(errs, b.controller.Close())
	}
	if b.lab != nil {
		errs = append(errs, b.lab.Close())
	}
	return errors.Join(append(errs, os.RemoveAll(b.dir))...)
}

// backendAt returns the configuration of a backend that uses the controller at a URL.
func (b *bench) backendAt(url string) odl.Config {
	return odl.Config{URLs: url, AuthFile: b.authFile}
}

// say reports progress.
func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "[%5.1fs] %s\n", time.Since(b.begun).Seconds(), fmt.Sprintf(format, args...))
}

// folder creates a folder in the one that is removed at the end.
func (b *bench) folder(name string) (string, error) {
	dir, err := os.MkdirTemp(b.dir, name)
	if err != nil {
		return "", fmt.Errorf("make a folder: %w", err)
	}
	return dir, nil
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
