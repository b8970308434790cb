// Package program has what the demos share: their command line, the steps of a story, and the
// installation of packages.
package program

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"

	"github.com/coe-bridge/coe-bridge/test/demo/screen"
)

// Command is a command of a demo. It gets the arguments after its name.
type Command func(ctx context.Context, args []string) error

// Main runs the command that the command line names, until SIGINT or SIGTERM. If it fails, Main prints
// the error after the demo's name, and exits with status 1.
func Main(name, usage string, commands map[string]Command) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, usage, commands, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, usage string, commands map[string]Command, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("no command\n%s", usage)
	}
	command := commands[args[0]]
	if command == nil {
		return fmt.Errorf("unknown command %q\n%s", args[0], usage)
	}
	return command(ctx, args[1:])
}

// Root fails if the demo does not run as root.
func Root() error {
	if os.Geteuid() != 0 {
		return errors.New("network namespaces need root: run as root")
	}
	return nil
}

// Down returns the command that removes a demo if it exists. gone lists what it removes.
func Down(exists func() bool, remove func() error, gone string) Command {
	return func(context.Context, []string) error {
		if err := Root(); err != nil {
			return err
		}
		if !exists() {
			fmt.Println("no demo is running")
			return nil
		}
		if err := remove(); err != nil {
			return err
		}
		fmt.Println("the demo is gone: its " + gone)
		return nil
	}
}

// Step is a step of a story.
type Step struct {
	Title string
	Do    func(context.Context) error
}

// Tell does one step after the other, up to the first that fails.
func Tell(ctx context.Context, s *screen.Screen, steps []Step) error {
	for _, step := range steps {
		s.Step(step.Title)
		if err := step.Do(ctx); err != nil {
			return fmt.Errorf("%s: %w", strings.ToLower(step.Title[:1])+step.Title[1:], err)
		}
	}
	s.Step("Done")
	return nil
}

// InstallPackages installs the Debian packages that are missing.
func InstallPackages(ctx context.Context, s *screen.Screen, missing func() []string) error {
	packages := missing()
	if len(packages) == 0 {
		s.Say("all Debian packages are installed")
		return nil
	}
	s.Say("installing %s", strings.Join(packages, " "))
	for _, args := range [][]string{
		{"update"},
		append([]string{"install", "--yes", "--no-install-recommends"}, packages...),
	} {
		cmd := exec.CommandContext(ctx, "apt-get", args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("run %s: %w: %s", strings.Join(cmd.Args, " "), err, out)
		}
	}
	if packages = missing(); len(packages) > 0 {
		return fmt.Errorf("apt-get has succeeded, but there is something missing of %s", strings.Join(packages, " "))
	}
	return nil
}
