// Package multus builds the real Multus for tests: its thin plugin, which container runtimes call, and which
// calls the plugins of a pod's networks.
package multus

import (
	"context"
	"io"

	"github.com/coe-bridge/coe-bridge/test/lab/kube"
)

var plugin = kube.Program{
	Title: "Multus v4.3.0", Takes: "some seconds",
	Package: "gopkg.in/k8snetworkplumbingwg/multus-cni.v4/cmd/multus",
	Name:    "multus-v4.3.0", Binary: "multus", LDFlags: "-s -w",
}

// Build returns the path of the plugin. It builds the plugin if the user's cache does not have it, and
// reports to progress.
func Build(ctx context.Context, progress io.Writer) (path string, err error) {
	return plugin.Build(ctx, progress)
}
