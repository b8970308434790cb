// Command coe-bridge gives a Kubernetes cluster without OpenStack its pod
// network, from one declarative model. See the README, or --help.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	root := newRoot()
	root.SetOut(&terminal{Writer: os.Stdout})
	root.SetErr(&terminal{Writer: os.Stderr})
	err := root.ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(&terminal{Writer: os.Stderr}, "coe-bridge: "+err.Error())
		os.Exit(1)
	}
}
