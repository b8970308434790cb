// Command build makes the Kubernetes that the tests run, where the user's cache
// folder does not have it, so that no test has to.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/coe-bridge/coe-bridge/test/kube"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	binary, err := kube.Build(ctx, os.Stdout)
	if err != nil {
		return err
	}
	fmt.Println(binary)
	return nil
}
