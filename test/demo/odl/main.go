// Command demoodl shows coe-bridge with a real OpenDaylight: "demoodl up" installs and
// starts one in a network namespace of this machine, and two hosts whose switches it
// programs; pods that are posted to the bridge are plugged in by the CNI plugin, and reach
// each other through the flows that OpenDaylight made. It leaves everything running to look
// at; "demoodl down" removes it without trace.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

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
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo-odl:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("no command\n%s", usage)
	}
	if os.Geteuid() != 0 {
		return errors.New("network namespaces need root: run as root")
	}
	switch args[0] {
	case "up":
		return up(ctx, args[1:])
	case "down":
		return down()
	default:
		return fmt.Errorf("unknown command %q\n%s", args[0], usage)
	}
}

func up(ctx context.Context, args []string) error {
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

func down() error {
	if !ovnhost.Exists(prefix) {
		fmt.Println("no demo is running")
		return nil
	}
	if err := odl.Cleanup(prefix); err != nil {
		return err
	}
	fmt.Println("the demo is gone: its processes, namespaces, links and files")
	return nil
}

// installPackages installs the Debian packages that are missing.
func installPackages(ctx context.Context, missing []string) error {
	for _, args := range [][]string{
		{"update"},
		append([]string{"install", "--yes", "--no-install-recommends"}, missing...),
	} {
		cmd := exec.CommandContext(ctx, "apt-get", args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("run %s: %w: %s", strings.Join(cmd.Args, " "), err, out)
		}
	}
	return nil
}
