package e2e

import (
	"bytes"
	"errors"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
	"github.com/coe-bridge/coe-bridge/test/lab/ovsdb"
)

// TestNoGoroutineLeakMemory and its sibling run alone. Parallel tests start after them.
func TestNoGoroutineLeakMemory(t *testing.T) { testLeak(t) }

func TestNoGoroutineLeakOVN(t *testing.T) {
	testLeak(t, bridgetest.OVN(ovsdb.Start(t).Endpoint()))
}

// testLeak starts and stops a bridge under load several times. It ignores resources that only the
// first bridge leaves. Resources that a later bridge leaves are leaks.
func testLeak(t *testing.T, options ...bridgetest.Option) {
	b := bridgetest.Start(t, options...)
	live := func(pods int) {
		b.Restart()
		r := rest{b.Client()}
		r.putPool(t, addressPool{network: "default", subnet: "10.42.0.0/16"})
		r.putPods(t, numbered("web", pods)...)
		r.awaitSync(t, converge)
		b.Stop()
	}
	live(3)
	before := stacks()
	live(6)
	live(9)
	await(t, converge, "goroutines are gone", func() error {
		var left []error
		for id, stack := range stacks() {
			if _, there := before[id]; !there {
				left = append(left, errors.New(stack))
			}
		}
		return errors.Join(left...)
	})
	require.NotEmpty(t, before)
}

// stacks returns the stacks of all goroutines, by "goroutine n".
func stacks() map[string]string {
	text := make([]byte, 8<<20)
	text = text[:runtime.Stack(text, true)]
	out := map[string]string{}
	for stack := range bytes.SplitSeq(text, []byte("\n\n")) {
		id, _, _ := bytes.Cut(stack, []byte(" ["))
		out[string(id)] = string(stack)
	}
	return out
}
