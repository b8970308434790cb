// Command demo tells the story of the Netvirt COE integration specification on
// real parts: "demo up" starts a central OVN and two hosts in network namespaces
// and a bridge on top of them, posts nodes, pods and a service by plain HTTP,
// plugs the pods in and sends traffic between them. It leaves everything running
// to look at; "demo down" removes it without trace.
//
// It knows the bridge only as any client does: by RESTCONF and its command line.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/coe-bridge/coe-bridge/test/demo/screen"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// prefix names the demo's lab.
const prefix = "demo"

// storyTimeout bounds the whole of demo up.
const storyTimeout = 10 * time.Minute

const usage = `Usage:
  demo up [--listen ADDRESS:PORT] [--bridge FILE]   start, tell the story, leave all running (root)
  demo down                                         remove all of it (root)`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("no command\n%s", usage)
	}
	switch args[0] {
	case "up":
		return up(ctx, args[1:])
	case "down":
		return down()
	case pageCommand:
		return servePage(args[1:])
	default:
		return fmt.Errorf("unknown command %q\n%s", args[0], usage)
	}
}

func up(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("demo up", flag.ContinueOnError)
	listen := flags.String("listen", "127.0.0.1:8181", "where the bridge listens")
	bridge := flags.String("bridge", "bin/coe-bridge", "the bridge's program")
	if err := flags.Parse(args); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, storyTimeout)
	defer cancel()
	s := newStory(screen.New(os.Stdout), *listen, *bridge)
	if err := s.tell(ctx); err != nil {
		if ovnhost.Exists(prefix) {
			err = fmt.Errorf("%w\nlogs: /run/ovnhost/%s/logs. The demo is left for inspection; make demo-down removes it", err, prefix)
		}
		return err
	}
	return nil
}

func down() error {
	if os.Geteuid() != 0 {
		return errors.New("remove the demo: run as root")
	}
	if !ovnhost.Exists(prefix) {
		fmt.Println("no demo is running")
		return nil
	}
	if err := ovnhost.Cleanup(prefix); err != nil {
		return err
	}
	fmt.Println("the demo is gone: its processes, namespaces, links and files")
	return nil
}

// pageCommand serves a page; the demo runs itself with it in pods.
const pageCommand = "page"

// servePage answers every request with a text: args are an address and the text.
func servePage(args []string) error {
	if len(args) != 2 {
		return errors.New("page: want an address and a text")
	}
	server := http.Server{
		Addr:              args[0],
		ReadHeaderTimeout: 5 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, args[1]+"\n")
		}),
	}
	return server.ListenAndServe()
}
