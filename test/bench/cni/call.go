package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/vishvananda/netns"
)

// atOnce is the number of calls at the same time.
const atOnce = 8

// apart is the time in which the kernel removes the namespaces and links of a round.
const apart = time.Second

// callTimeout bounds one call.
const callTimeout = time.Minute

// sandbox is a pod's network namespace, with the data that its container runtime has.
type sandbox struct {
	netns     string // its name
	container string
	args      string // CNI_ARGS
}

// inside calls f on a thread in a network namespace. Programs that f starts and sockets that it
// opens are in the namespace.
func inside(name string, f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // it is not unlocked, so that the thread ends with the goroutine
		ns, err := netns.GetFromName(name)
		if err == nil {
			err = errors.Join(netns.Set(ns), ns.Close())
		}
		if err != nil {
			done <- fmt.Errorf("enter namespace %s: %w", name, err)
			return
		}
		done <- f()
	}()
	return <-done
}

// addNamespaces creates network namespaces.
func addNamespaces(names ...string) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // not unlocked, as in inside
		for _, name := range names {
			ns, err := netns.NewNamed(name)
			if err == nil {
				err = ns.Close()
			}
			if err != nil {
				done <- fmt.Errorf("make namespace %s: %w", name, err)
				return
			}
		}
		done <- nil
	}()
	return <-done
}

// removeNamespaces removes network namespaces, and then waits. The kernel frees them in the
// background, and no program can create or remove a link meanwhile.
func removeNamespaces(names ...string) error {
	defer func() { <-time.After(apart) }()
	var errs []error
	for _, name := range names {
		if err := netns.DeleteNamed(name); err != nil {
			errs = append(errs, fmt.Errorf("remove namespace %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// plugin is a CNI plugin as a runtime calls it.
type plugin struct {
	program string
	config  string
	host    string // the namespace in which it is called
}

// call makes a call, and returns its duration, from the start of the program to its end.
func (p plugin) call(ctx context.Context, command string, s sandbox) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.program)
	cmd.Env = []string{
		"CNI_COMMAND=" + command, "CNI_CONTAINERID=" + s.container, "CNI_NETNS=/run/netns/" + s.netns, "CNI_IFNAME=eth0",
		"CNI_ARGS=" + s.args, "CNI_PATH=" + filepath.Dir(p.program), "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
	}
	cmd.Stdin = bytes.NewBufferString(p.config)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	begun := time.Now()
	if err := cmd.Run(); err != nil {
		return 0, fmt.Errorf("%s of %s: %w: %s", command, s.container, err, out.Bytes())
	}
	return time.Since(begun), nil
}

// each makes a call for every sandbox, atOnce at the same time. It runs first before each call, if
// first is not nil.
func (p plugin) each(ctx context.Context, command string, all []sandbox, first func(i int) error) ([]time.Duration, error) {
	took, next := make([]time.Duration, len(all)), make(chan int, len(all))
	for i := range all {
		next <- i
	}
	close(next)
	errs := make([]error, atOnce)
	var running sync.WaitGroup
	for worker := range atOnce {
		running.Go(func() {
			errs[worker] = inside(p.host, func() (err error) {
				for i := range next {
					if first != nil {
						err = first(i)
					}
					if err == nil {
						took[i], err = p.call(ctx, command, all[i])
					}
					if err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
	running.Wait()
	return took, errors.Join(errs...)
}
