// Command benchcni measures the figures that the CNI plugin and the node agent are held
// to: on real hosts with Open vSwitch and OVN in network namespaces, with bridge and
// agents as processes of their own, and prints them beside their bounds. What a figure
// compares with runs by turns with it, so that the machine's moods meet both alike.
//
// It needs root, the Debian packages of test/ovnhost, and the Go toolchain, with which
// it builds the reference plugins into a cache.
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
	"time"

	"github.com/coe-bridge/coe-bridge/test/figures"
)

// measurements in the order of the table.
var measurements = []struct {
	name    string
	measure func(context.Context, *bench) ([]figures.Figure, error)
}{
	{"plug", measurePlug},
	{"whole", measureWhole},
	{"traffic", measureTraffic},
}

// errOutside says that a figure is outside its bound.
var errOutside = errors.New("a figure is outside its bound")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchcni:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	var names []string
	for _, m := range measurements {
		names = append(names, m.name)
	}
	check := flag.Bool("check", false, "exit with status 1 when a figure is outside its bound")
	only := flag.String("only", strings.Join(names, ","), "what to measure")
	flag.Parse()
	wanted := strings.Split(*only, ",")
	for _, name := range wanted {
		if !slices.Contains(names, name) {
			return fmt.Errorf("-only %s: want some of %s", name, strings.Join(names, ","))
		}
	}
	all, err := measure(ctx, wanted)
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

// measure measures each thing in a world of its own.
func measure(ctx context.Context, wanted []string) ([]figures.Figure, error) {
	b := &bench{begun: time.Now()}
	if err := b.build(ctx); err != nil {
		return nil, errors.Join(err, b.close())
	}
	var all []figures.Figure
	for _, m := range measurements {
		if !slices.Contains(wanted, m.name) {
			continue
		}
		measured, err := m.measure(ctx, b)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("measure %s: %w", m.name, err), b.close())
		}
		all = append(all, measured...)
	}
	return all, b.close()
}
