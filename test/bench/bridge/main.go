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
	"path/filepath"
	"runtime/pprof"
	"time"

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
		return b, b.close, err
	})
}

// bench has the data that all measurements share.
type bench struct {
	begun     time.Time
	dir       string // for all files; removed at the end
	usersFile string
	log       *slog.Logger
	profile   *os.File // nil for none
}

func newBench(profile string) (*bench, error) {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return nil, fmt.Errorf("make a folder for the measurements: %w", err)
	}
	b := &bench{
		begun: time.Now(), dir: dir, usersFile: filepath.Join(dir, "users"),
		log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	hash, err := access.HashPassword(password, access.Bcrypt)
	if err == nil {
		err = os.WriteFile(b.usersFile, []byte(user+":writer:"+hash+"\n"), 0o600)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("write the file of users: %w", err), os.RemoveAll(dir))
	}
	if err := b.startProfile(profile); err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

// startProfile writes a CPU profile until close. An empty path means no profile.
func (b *bench) startProfile(path string) (err error) {
	if path == "" {
		return nil
	}
	if b.profile, err = os.Create(path); err == nil {
		err = pprof.StartCPUProfile(b.profile)
	}
	if err != nil {
		return fmt.Errorf("write the profile: %w", err)
	}
	return nil
}

func (b *bench) close() error {
	var err error
	if b.profile != nil {
		pprof.StopCPUProfile()
		err = b.profile.Close()
	}
	return errors.Join(err, os.RemoveAll(b.dir))
}

// say reports progress.
func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "[%5.1fs] %s\n", time.Since(b.begun).Seconds(), fmt.Sprintf(format, args...))
}

// folder creates a folder in the one that is removed at the end.
func (b *bench) folder(name string) (string, error) {
	dir, err := os.MkdirTemp(b.dir, name)
	if err != nil {
		return "", fmt.Errorf("make a folder: %w", err)
	}
	return dir, nil
}
