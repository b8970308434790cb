// Command build makes the Kubernetes that tests and the demo run, what its pods run, and
// Multus, where the user's cache folder does not have it, so that no test has to.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/coe-bridge/coe-bridge/test/kubelab"
	"github.com/coe-bridge/coe-bridge/test/multus"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := kubelab.Build(ctx, os.Stdout)
	if err == nil {
		_, err = multus.Build(ctx, os.Stdout)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
