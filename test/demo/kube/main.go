// Command demokube shows coe-bridge in a real Kubernetes cluster: "demokube up" starts
// one of two nodes on this machine, installs coe-bridge in it as docs/kubernetes.md says,
// and has pods reach each other, a service, the nodes and the API server. It leaves the
// cluster running; "demokube down" removes it without trace.
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
	"github.com/coe-bridge/coe-bridge/test/lab/kubelab"
)

// prefix names the demo's cluster.
const prefix = "demo-k8s"

// storyTimeout bounds the whole of demokube up, builds of the first time included.
const storyTimeout = 30 * time.Minute

const usage = `Usage:
  demokube up [--bin FOLDER]   start, tell the story, leave all running (root)
  demokube down                remove all of it (root)`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo-k8s:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("no command\n%s", usage)
	}
	if os.Geteuid() != 0 {
		return errors.New("namespaces and mounts need root: run as root")
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
	flags := flag.NewFlagSet("demokube up", flag.ContinueOnError)
	bin := flags.String("bin", "bin", "folder with coe-bridge and coe-cni, as make build leaves it")
	if err := flags.Parse(args); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, storyTimeout)
	defer cancel()
	s := &story{screen: screen.New(os.Stdout), bin: *bin}
	if err := s.tell(ctx); err != nil {
		if kubelab.Exists(prefix) {
			err = fmt.Errorf("%w\nWhat was started is left to look at (logs: %s); make demo-k8s-down removes it", err, kubelab.LogFolders(prefix))
		}
		return err
	}
	return nil
}

func down() error {
	if !kubelab.Exists(prefix) {
		fmt.Println("no demo is running")
		return nil
	}
	if err := kubelab.Cleanup(prefix); err != nil {
		return err
	}
	fmt.Println("the demo is gone: its processes, namespaces, mounts, control groups and files")
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
