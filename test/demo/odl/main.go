// Command demoodl shows coe-bridge with a real OpenDaylight: "demoodl up" installs and
// starts one in a network namespace of this machine, and two hosts whose switches it
// programs; pods that are posted to the bridge are plugged in by the CNI plugin, and reach
// each other through the flows that OpenDaylight made. It leaves everything running to look
// at; "demoodl down" removes it without trace.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/coe-bridge/coe-bridge/test/demo/program"
	"github.com/coe-bridge/coe-bridge/test/demo/screen"
	"github.com/coe-bridge/coe-bridge/test/lab/odl"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// prefix names the demo's lab.
const prefix = "demo-odl"

// storyTimeout bounds the whole of demoodl up, the installation of the first time included.
const storyTimeout = 45 * time.Minute

const usage = `Usage:
  demoodl up [--bin FOLDER] [--release oxygen|neon]   start, tell the story, leave all running (root)
  demoodl down                                        remove all of it (root)`

func main() {
	exists := func() bool { return ovnhost.Exists(prefix) }
	remove := func() error { return odl.Cleanup(prefix) }
	program.Main("demo-odl", usage, map[string]program.Command{
		"up":   up,
		"down": program.Down(exists, remove, "processes, namespaces, links and files"),
	})
}

func up(ctx context.Context, args []string) error {
	if err := program.Root(); err != nil {
		return err
	}
	flags := flag.NewFlagSet("demoodl up", flag.ContinueOnError)
	bin := flags.String("bin", "bin", "folder with coe-bridge and coe-cni, as make build leaves it")
	release := flags.String("release", string(odl.Oxygen), "the release of OpenDaylight: oxygen or neon")
	if err := flags.Parse(args); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, storyTimeout)
	defer cancel()
	s := &story{screen: screen.New(os.Stdout), bin: *bin, release: odl.Release(*release)}
	if err := s.tell(ctx); err != nil {
		if ovnhost.Exists(prefix) {
			err = fmt.Errorf("%w\nlogs: /run/ovnhost/%s/logs. The demo is left for inspection; make demo-odl-down removes it", err, prefix)
		}
		return err
	}
	return nil
}
