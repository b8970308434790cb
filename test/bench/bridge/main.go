// Command bench measures the performance figures of coe-bridge on real parts, and prints them
// with their bounds. The reference of a figure runs in the same process, alternating with it, so
// that changes of the machine's speed affect both.
//
// It needs ovsdb-server and the Go toolchain, but neither root nor a running OVN.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"

	"github.com/coe-bridge/coe-bridge/restconf/access"
	"github.com/coe-bridge/coe-bridge/test/bench/figures"
	"github.com/coe-bridge/coe-bridge/test/lab/serve"
)

// The credentials of every measured bridge. The bridge has a bcrypt hash of the password, as in
// production.
const user, password = serve.User, serve.Password

// measurements in the order of the table.
var measurements = []figures.Measurement[*bench]{
	{Name: "map", Measure: measureMap},
	{Name: "start", Measure: measureStart},
	{Name: "latency", Measure: measureLatency},
	{Name: "put", Measure: measurePut},
	{Name: "post", Measure: measurePost},
	{Name: "get", Measure: measureGet},
	{Name: "stream", Measure: measureStream},
	{Name: "memory", Measure: measureMemory},
	{Name: "captured", Measure: measureCaptured},
}

func main() {
	if served, err := serveAttack(context.Background()); served {
		if err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	profile := flag.String("cpuprofile", "", "write a CPU profile of the measurements to a `file`")
	figures.Main("bench", measurements, func(context.Context) (*bench, func() error, error) {
		b, err := newBench(*profile)
		if err != nil {
			return nil, nil, err
		}
		return b, b.Close, nil
	})
}

// bench has the data that all measurements share.
type bench struct {
	*figures.Workspace
	usersFile string
	log       *slog.Logger
}

func newBench(profile string) (*bench, error) {
	w, err := figures.NewWorkspace("bench", profile)
	if err != nil {
		return nil, err
	}
	b := &bench{
		Workspace: w, usersFile: w.File("users"),
		log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	hash, err := access.HashPassword(password, access.Bcrypt)
	if err == nil {
		err = os.WriteFile(b.usersFile, []byte(user+":writer:"+hash+"\n"), 0o600)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("write the file of users: %w", err), b.Close())
	}
	return b, nil
}
