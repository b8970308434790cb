// Command coe-bridge gives a Kubernetes cluster without OpenStack its pod
// network, from one declarative model. See the README, or --help.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/output"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	klog.SetLogger(logr.Discard()) // client-go would write lines of its own to stderr; serve logs them
	root := newRoot()
	root.SetOut(&output.Terminal{Writer: os.Stdout})
	root.SetErr(&output.Terminal{Writer: os.Stderr})
	err := root.ExecuteContext(ctx)
	stop()
	status := 1
	answer, ends := errors.AsType[output.Exit](err)
	if ends {
		status = answer.Status
	}
	if err != nil {
		if !ends || answer.Err != nil {
			fmt.Fprintln(&output.Terminal{Writer: os.Stderr}, "coe-bridge: "+err.Error())
		}
		os.Exit(status)
	}
}
