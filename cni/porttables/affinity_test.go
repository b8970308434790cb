package porttables_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cni/nodeports"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// A client of a port with affinity keeps its endpoint while that is one of the port, also if others come and go. It gets
// another one when the time since its last connection is over. Others can read the rules, and what they change is restored.
func TestAffinity(t *testing.T) { eachFamily(t, testAffinity) }

func testAffinity(w *world) {
	t := w.T
	var pods []string
	for i := range 8 {
		address := fmt.Sprintf("10.42.1.%d", i+1)
		w.run(w.pods, "ip addr add "+address+"/32 dev lo")
		w.serve(address + ":8080")
		pods = append(pods, address)
	}
	ask := func(source string) string {
		t.Helper()
		got, err := w.ask(w.outside, source, "tcp", node+":30080")
		require.NoError(t, err)
		return strings.Fields(got)[0]
	}
	keeps := func(source, want string) {
		t.Helper()
		for range 20 {
			require.Equal(t, want, ask(source))
		}
	}
	without := func(gone string) []string {
		return slices.DeleteFunc(slices.Clone(pods), func(p string) bool { return w.text(p+":8080") == gone })
	}
	sync := func(affinity time.Duration, of ...string) {
		t.Helper()
		port := direct("tcp", 30080, of...)
		port.Affinity = affinity
		w.sync(true, port)
	}

	sync(time.Hour, pods[:7]...)
	first := ask(client)
	keeps(client, first)
	sync(time.Hour, pods...)
	keeps(client, first)
	sync(time.Hour, without(first)...)
	second := ask(client)
	require.NotEqual(t, first, second)
	keeps(client, second)
	sync(time.Hour, pods...)
	again := ask(client)
	require.Contains(t, []string{first, second}, again, "it had both")
	keeps(client, again)

	sync(time.Second, pods...)
	require.Eventually(t, func() bool { return ask(client) != again }, 10*patience.Patience, 1500*time.Millisecond, "the time is over each time")

	const chain = nodeports.TableName + " client-tcp-30080"
	whole := w.run(w.node, "nft -s list chain ip "+chain)
	require.Equal(t, 2*len(pods)+1, strings.Count(whole, "comment"), whole)
	for _, harm := range []string{"flush chain ip " + chain, "add rule ip " + chain + " accept", "insert rule ip " + chain + " drop", "flush table ip " + nodeports.TableName} {
		w.run(w.node, "nft "+harm)
		sync(time.Second, pods...)
		require.Equal(t, whole, w.run(w.node, "nft -s list chain ip "+chain), harm)
	}

	// A node remembers so many clients. One more keeps its endpoint, too.
	sync(time.Hour, pods...)
	w.fillClients()
	third := ask(other)
	keeps(other, third)
	require.NotContains(t, w.run(w.node, "nft list set ip "+nodeports.TableName+" clients"), w.text(other)+" ", "it is not remembered")

	w.sync(true, direct("tcp", 30080, pods...))
	require.NotContains(t, w.run(w.node, "nft -s list table ip "+nodeports.TableName), "client-tcp")
	w.sync(false, direct("tcp", 30080, pods...))
}

// fillClients fills the set of clients. An addition that is too large adds nothing.
func (w *world) fillClients() {
	w.run(w.node, "nft flush set ip "+nodeports.TableName+" clients") // a client whose time ends would leave a place
	const most, each = 1 << 16, 1 << 10
	sizes := slices.Repeat([]int{each}, most/each)
	for size := each / 2; size > 0; size /= 2 {
		sizes = append(sizes, size)
	}
	begin := 0
	for _, size := range sizes {
		var elements strings.Builder
		for i := begin; i < begin+size; i++ {
			_, _ = fmt.Fprintf(&elements, "203.%d.%d.%d . 192.0.2.1 . 9 . 9,", i>>16, i>>8&255, i&255)
		}
		begin += size
		w.run(w.node, "nft -f - <<'END' 2>/dev/null || true\nadd element ip "+nodeports.TableName+" clients {"+elements.String()+"}\nEND")
	}
}
