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
	"time"

	"github.com/coe-bridge/coe-bridge/test/demo/program"
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
	exists := func() bool { return ovnhost.Exists(prefix) }
	remove := func() error { return ovnhost.Cleanup(prefix) }
	program.Main("demo", usage, map[string]program.Command{
		"up":        up,
		"down":      program.Down(exists, remove, "processes, namespaces, links and files"),
		pageCommand: servePage,
	})
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

// pageCommand serves a page; the demo runs itself with it in pods.
const pageCommand = "page"

// servePage answers every request with a text: args are an address and the text.
func servePage(_ context.Context, args []string) error {
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
