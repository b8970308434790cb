// Command benchodl measures the figures that the OpenDaylight backend is held to, on a
// real controller (Oxygen) that manages no switch, with the bridge in this process, and
// prints them beside their bounds. What a figure compares with are bare clients that send
// the controller the same requests, by turns with the bridge, so that the machine's moods
// meet both alike.
//
// It needs root and what test/odl needs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/coe-bridge/coe-bridge/test/figures"
)

// measurements in the order of the table.
var measurements = []struct {
	name    string
	measure func(context.Context, *bench) ([]figures.Figure, error)
}{
	{"start", measureStart},
	{"latency", measureLatency},
	{"large", measureLarge},
}

// errOutside says that a figure is outside its bound.
var errOutside = errors.New("a figure is outside its bound")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchodl:", err)
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
	profile := flag.String("cpuprofile", "", "write a CPU profile of what is measured to a `file`")
	flag.Parse()
	wanted := strings.Split(*only, ",")
	for _, name := range wanted {
		if !slices.Contains(names, name) {
			return fmt.Errorf("-only %s: want some of %s", name, strings.Join(names, ","))
		}
	}
	b, err := newBench(ctx, *profile)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
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
