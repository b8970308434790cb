// Command benchkube measures the figures that coe-bridge is held to as a source of
// Kubernetes, on a real API server and a real northbound database without northd,
// and prints them beside their bounds. The bridge is a process of its own. What a
// figure compares with runs by turns with it, so that the machine's moods meet both
// alike.
//
// It needs ovsdb-server and the Go toolchain, neither root nor a running OVN.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/coe-bridge/coe-bridge/restconf/access"
	"github.com/coe-bridge/coe-bridge/test/etcd"
	"github.com/coe-bridge/coe-bridge/test/figures"
	"github.com/coe-bridge/coe-bridge/test/serve"
)

// measurements in the order of the table.
var measurements = []struct {
	name    string
	measure func(context.Context, *bench) ([]figures.Figure, error)
}{
	{"start", measureStart},
	{"storm", measureStorm},
	{"annotate", measureAnnotations},
	{"churn", measureChurn},
	{"restart", measureRestart},
	{"takeover", measureTakeOver},
	{"large", measureLarge},
}

// errOutside says that a figure is outside its bound.
var errOutside = errors.New("a figure is outside its bound")

func main() {
	if served, err := etcd.Serve(); served {
		exit(err)
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	exit(err)
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchkube:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	var names []string
	for _, m := range measurements {
		names = append(names, m.name)
	}
	check := flag.Bool("check", false, "exit with status 1 when a figure is outside its bound")
	only := flag.String("only", strings.Join(names, ","), "what to measure")
	program := flag.String("bridge", "", "the coe-bridge to measure, a `file`; default: that of this source tree")
	flag.Parse()
	wanted := strings.Split(*only, ",")
	for _, name := range wanted {
		if !slices.Contains(names, name) {
			return fmt.Errorf("-only %s: want some of %s", name, strings.Join(names, ","))
		}
	}
	b, err := newBench(ctx, *program)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	all, err := b.measure(ctx, wanted)
	if err != nil {
		return errors.Join(err, figures.Write(os.Stdout, all))
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
	program   string // the bridge
	null      string // the null controller
}

func newBench(ctx context.Context, program string) (*bench, error) {
	dir, err := os.MkdirTemp("", "benchkube")
	if err != nil {
		return nil, fmt.Errorf("make a folder for the measurements: %w", err)
	}
	b := &bench{begun: time.Now(), dir: dir, usersFile: filepath.Join(dir, "users"), program: program}
	if err := b.prepare(ctx); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return b, nil
}

func (b *bench) prepare(ctx context.Context) error {
	// A bcrypt hash, as in production.
	hash, err := access.HashPassword(serve.Password, access.Bcrypt)
	if err != nil {
		return fmt.Errorf("hash the password: %w", err)
	}
	if err := os.WriteFile(b.usersFile, []byte(serve.User+":writer:"+hash+"\n"), 0o600); err != nil {
		return fmt.Errorf("write the file of users: %w", err)
	}
	b.say("building the bridge, and a controller that does nothing to compare it with")
	if b.program == "" {
		if b.program, err = serve.Build(ctx, b.dir); err != nil {
			return err
		}
	}
	b.null, err = buildNull(ctx, b.dir)
	return err
}

// measure returns what was measured before an error, too.
func (b *bench) measure(ctx context.Context, wanted []string) ([]figures.Figure, error) {
	var all []figures.Figure
	for _, m := range measurements {
		if !slices.Contains(wanted, m.name) {
			continue
		}
		measured, err := m.measure(ctx, b)
		if err != nil {
			return all, fmt.Errorf("measure %s: %w", m.name, err)
		}
		all = append(all, measured...)
	}
	return all, nil
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
