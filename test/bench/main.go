// Command bench measures the figures that coe-bridge is held to, on real parts,
// and prints them beside their bounds. What a figure compares with runs in the
// same process and by turns, so that the machine's moods meet both alike.
//
// It needs ovsdb-server and the Go toolchain, neither root nor a running OVN.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/coe-bridge/coe-bridge/restconf/access"
	"github.com/coe-bridge/coe-bridge/test/figures"
	"github.com/coe-bridge/coe-bridge/test/serve"
)

// The credentials of every bridge that is measured; they are kept as bcrypt
// hashes, as in production.
const user, password = serve.User, serve.Password

// measurements in the order of the table.
var measurements = []struct {
	name    string
	measure func(context.Context, *bench) ([]figures.Figure, error)
}{
	{"map", measureMap},
	{"start", measureStart},
	{"latency", measureLatency},
	{"put", measurePut},
	{"post", measurePost},
	{"get", measureGet},
	{"stream", measureStream},
	{"memory", measureMemory},
}

// errOutside says that a figure is outside its bound.
var errOutside = errors.New("a figure is outside its bound")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	names := make([]string, 0, len(measurements))
	for _, m := range measurements {
		names = append(names, m.name)
	}
	check := flag.Bool("check", false, "exit with status 1 when a figure is outside its bound")
	only := flag.String("only", strings.Join(names, ","), "what to measure")
	profile := flag.String("cpuprofile", "", "write a CPU profile of what is measured to a `file`")
	flag.Parse()
	wanted := strings.Split(*only, ",")
	for _, name := range wanted {
		if !slices.Contains(names, name) {
			return fmt.Errorf("--only %s: want some of %s", name, strings.Join(names, ","))
		}
	}
	b, err := newBench()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	all, err := b.profiled(*profile, func() ([]figures.Figure, error) { return b.measure(ctx, wanted) })
	if err != nil {
		return err
	}
	if err := figures.Write(os.Stdout, all); err != nil {
		return err
	}
	if *check && figures.Outside(all) {
		return errOutside
	}
	return nil
}

// bench is what the measurements share.
type bench struct {
	begun     time.Time
	dir       string // for everything; removed at the end
	usersFile string
	log       *slog.Logger
}

func newBench() (*bench, error) {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return nil, fmt.Errorf("make a folder for the measurements: %w", err)
	}
	b := &bench{
		begun: time.Now(), dir: dir, usersFile: filepath.Join(dir, "users"),
		log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	hash, err := access.HashPassword(password, access.Bcrypt)
	if err == nil {
		err = os.WriteFile(b.usersFile, []byte(user+":writer:"+hash+"\n"), 0o600)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("write the file of users: %w", err), os.RemoveAll(dir))
	}
	return b, nil
}

func (b *bench) measure(ctx context.Context, wanted []string) ([]figures.Figure, error) {
	var all []figures.Figure
	for _, m := range measurements {
		if !slices.Contains(wanted, m.name) {
			continue
		}
		measured, err := m.measure(ctx, b)
		if err != nil {
			return nil, fmt.Errorf("measure %s: %w", m.name, err)
		}
		all = append(all, measured...)
	}
	return all, nil
}

func (b *bench) profiled(path string, measure func() ([]figures.Figure, error)) (all []figures.Figure, err error) {
	if path == "" {
		return measure()
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("write the profile: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, fmt.Errorf("write the profile: %w", err)
	}
	defer pprof.StopCPUProfile()
	return measure()
}

// say tells what is under way.
func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "[%5.1fs] %s\n", time.Since(b.begun).Seconds(), fmt.Sprintf(format, args...))
}

// folder makes a folder of the given name, in the one that is removed at the end.
func (b *bench) folder(name string) (string, error) {
	dir, err := os.MkdirTemp(b.dir, name)
	if err != nil {
		return "", fmt.Errorf("make a folder: %w", err)
	}
	return dir, nil
}
