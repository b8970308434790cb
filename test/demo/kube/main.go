// Command demokube shows coe-bridge in a real Kubernetes cluster: "demokube up" starts
// one of two nodes on this machine, which OVN or OpenDaylight connects, installs coe-bridge
// in it as docs/kubernetes.md says, and has pods reach each other, a service, the nodes and
// the API server. It leaves the cluster running; "demokube down" removes it without trace.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/coe-bridge/coe-bridge/test/demo/program"
	"github.com/coe-bridge/coe-bridge/test/demo/screen"
	"github.com/coe-bridge/coe-bridge/test/lab/kubelab"
	"github.com/coe-bridge/coe-bridge/test/lab/odl"
)

// prefix names the demo's cluster.
const prefix = "demo-k8s"

// storyTimeout bounds the whole of demokube up, builds of the first time included.
const storyTimeout = 30 * time.Minute

const usage = `Usage:
  demokube up [--backend ovn|odl] [--release RELEASE] [--bin FOLDER]   start, tell the story, leave all running (root)
  demokube down                                                        remove all of it (root)`

func main() {
	exists := func() bool { return kubelab.Exists(prefix) }
	remove := func() error { return kubelab.Cleanup(prefix) }
	program.Main("demo-k8s", usage, map[string]program.Command{
		"up":   up,
		"down": program.Down(exists, remove, "processes, namespaces, mounts, control groups and files"),
	})
}

func up(ctx context.Context, args []string) error {
	if err := program.Root(); err != nil {
		return err
	}
	flags := flag.NewFlagSet("demokube up", flag.ContinueOnError)
	bin := flags.String("bin", "bin", "folder with coe-bridge and coe-cni, as make build leaves it")
	backend := flags.String("backend", "ovn", "what programs the switches: ovn or odl (OpenDaylight)")
	release := flags.String("release", string(odl.Oxygen), "the release of OpenDaylight: oxygen or neon (with --backend odl)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	s := &story{screen: screen.New(os.Stdout), bin: *bin}
	switch *backend {
	case "ovn":
	case "odl":
		if s.release = odl.Release(*release); !slices.Contains(odl.Releases(), s.release) {
			return fmt.Errorf("--release %s: want one of %v", *release, odl.Releases())
		}
	default:
		return fmt.Errorf("--backend %s: want ovn or odl", *backend)
	}
	ctx, cancel := context.WithTimeout(ctx, storyTimeout)
	defer cancel()
	if err := s.tell(ctx); err != nil {
		if kubelab.Exists(prefix) {
			err = fmt.Errorf("%w\nWhat was started is left to look at (logs: %s); make demo-k8s-down removes it", err, kubelab.LogFolders(prefix))
		}
		return err
	}
	return nil
}
