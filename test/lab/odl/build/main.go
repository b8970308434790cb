// Command build installs the OpenDaylight releases for tests and the demo into the user's cache, so that tests need not do it.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/coe-bridge/coe-bridge/test/lab/odl"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := install(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func install(ctx context.Context) error {
	for _, release := range odl.Releases() {
		if _, err := odl.Install(ctx, release, os.Stdout); err != nil {
			return err
		}
	}
	return nil
}
