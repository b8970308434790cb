package main

import (
	"bytes"
	"context"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/flags"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// asProgram is set in the environment of the test binary to run it as coe-bridge.
const asProgram = "COE_BRIDGE_TEST_AS_PROGRAM"

// The environment of whoever runs the tests sets no flags.
func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	for _, pair := range os.Environ() {
		if name, _, _ := strings.Cut(pair, "="); strings.HasPrefix(name, flags.EnvPrefix) {
			if err := os.Unsetenv(name); err != nil {
				panic(err)
			}
		}
	}
	os.Exit(m.Run())
}

// run executes the command line as main does, and returns standard output.
func run(t *testing.T, stdin string, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	root := newRoot()
	root.SetArgs(args)
	root.SetIn(strings.NewReader(stdin))
	root.SetOut(&out)
	root.SetErr(&out)
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

// background is a command that runs until it is interrupted.
type background struct {
	interrupt context.CancelFunc
	done      chan error
	mu        sync.Mutex
	said      bytes.Buffer
}

// start runs a command in the background; the end of the test interrupts it.
func start(t *testing.T, args ...string) *background {
	ctx, interrupt := context.WithCancel(context.Background())
	b := &background{interrupt: interrupt, done: make(chan error, 1)}
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(b)
	root.SetErr(b)
	go func() {
		b.done <- root.ExecuteContext(ctx)
		close(b.done)
	}()
	t.Cleanup(func() {
		interrupt()
		<-b.done
	})
	return b
}

// Write implements io.Writer.
func (b *background) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.said.Write(p)
}

func (b *background) text() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.said.String()
}

// await waits until the command has printed a text.
func (b *background) await(t *testing.T, text string) {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Contains(b.text(), text) }, patience.Patience, 10*time.Millisecond,
		"the command prints %q, after %s", text, b.text())
}

// file writes a file of the test's and returns its path.
func file(t *testing.T, name, content string) string {
	t.Helper()
	path := t.TempDir() + "/" + name
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}
