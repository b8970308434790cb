package figures

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
)

// errOutside means that a figure is outside its bound.
var errOutside = errors.New("a figure is outside its bound")

// Measurement is a measurement of a program. B is the type of the data that all measurements share.
type Measurement[B any] struct {
	Name    string // for -only
	Measure func(context.Context, B) ([]Figure, error)
	// Named measurements are made only if -only names them.
	Named bool
}

// Main runs program until SIGINT or SIGTERM. If program fails, Main prints the error after the
// program's name, and exits with status 1.
func Main[B any](name string, all []Measurement[B], open func(context.Context) (B, func() error, error)) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := program(ctx, all, open)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// program defines the flags -only and -check, and reads the command line. It makes the wanted
// measurements in their order, and prints their table. After an error it prints the figures that
// were measured before. open returns the shared data, and a function that closes them.
func program[B any](ctx context.Context, all []Measurement[B], open func(context.Context) (B, func() error, error)) (err error) {
	var names, usual []string
	for _, m := range all {
		names = append(names, m.Name)
		if !m.Named {
			usual = append(usual, m.Name)
		}
	}
	check := flag.Bool("check", false, "exit with status 1 if a figure is outside its bound")
	only := flag.String("only", strings.Join(usual, ","), "comma-separated measurements to make")
	flag.Parse()
	wanted := strings.Split(*only, ",")
	for _, name := range wanted {
		if !slices.Contains(names, name) {
			return fmt.Errorf("-only %s: want some of %s", name, strings.Join(names, ","))
		}
	}
	shared, closeIt, err := open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeIt()) }()
	table, err := measure(ctx, all, wanted, shared)
	if err := errors.Join(err, Write(os.Stdout, table)); err != nil {
		return err
	}
	if *check && Outside(table) {
		return errOutside
	}
	return nil
}

func measure[B any](ctx context.Context, all []Measurement[B], wanted []string, shared B) (table []Figure, err error) {
	for _, m := range all {
		if !slices.Contains(wanted, m.Name) {
			continue
		}
		measured, err := m.Measure(ctx, shared)
		table = append(table, measured...)
		if err != nil {
			return table, fmt.Errorf("measure %s: %w", m.Name, err)
		}
	}
	return table, nil
}
