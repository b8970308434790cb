package hostile_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cmd/bridge"
	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
	"github.com/coe-bridge/coe-bridge/test/lab/etcd"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

const (
	restoreNode     = "192.168.33.11"
	restorePatience = patience.Patience
)

// restorePod posts a pod on the node.
func restorePod(b *bridgetest.Bridge, n int) error {
	uid := fmt.Sprintf("c0e00000-c0e0-4000-8000-%012d", n)
	status, answer := b.Do(http.MethodPut, "/restconf/config/pod:coe/pods/"+uid, fmt.Sprintf(
		`{"pods":[{"uid":%q,"name":"pod%d","network-NS":"shop","host-ip-address":%q,"interface":[{"uid":%q}]}]}`, uid, n, restoreNode, uid))
	if status/100 != 2 {
		return fmt.Errorf("PUT: %d %s", status, answer)
	}
	return nil
}

func restorePool(t *testing.T, b *bridgetest.Bridge) {
	t.Helper()
	status, answer := b.Do(http.MethodPut, "/restconf/config/dhcp_allocation_pool:dhcp_allocation_pool/network/default",
		`{"network":[{"network-id":"default","allocation-pool":[{"subnet":"10.42.0.0/16","allocate-from":"10.42.0.2","allocate-to":"10.42.255.254","gateway":"10.42.0.1"}]}]}`)
	require.Equal(t, 2, status/100, answer)
}

// follow follows a stream after an ID until a group, or a snapshot, has all the texts. It returns the
// ID of the group, and whether it was a snapshot.
func follow(t *testing.T, b *bridgetest.Bridge, stream, after string, tells ...string) (id string, snapshot bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), restorePatience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, b.URL()+"/rests/streams/"+stream, http.NoBody)
	require.NoError(t, err)
	r.SetBasicAuth(bridgetest.User, bridgetest.Password)
	r.Header.Set("Accept", "text/event-stream")
	if after != "" {
		r.Header.Set("Last-Event-ID", after)
	}
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer func() { _ = answer.Body.Close() }()
	require.Equal(t, http.StatusOK, answer.StatusCode)
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 1<<20)
	told := ""
	for lines.Scan() {
		told += lines.Text() + "\n"
		if value, is := strings.CutPrefix(lines.Text(), "id: "); is {
			id = value
		}
		if lines.Text() != "" || id == "" {
			continue
		}
		all := true
		for _, text := range tells {
			all = all && strings.Contains(told, text)
		}
		if all {
			return id, strings.Contains(told, "snapshot-complete")
		}
	}
	require.Fail(t, "the stream does not have the texts", "after %s, %q: %v: %s", after, tells, lines.Err(), told)
	return "", false
}

// awaitLostIDs waits until the metric counts the expected number of followers with an ID of an ended
// history.
func awaitLostIDs(t *testing.T, b *bridgetest.Bridge, fits func(n string) bool) {
	t.Helper()
	bridgetest.Await(t, 20*time.Millisecond, patience.Patience, "the metric of lost event IDs", func() error {
		_, metrics := b.Do(http.MethodGet, "/metrics", "")
		_, after, _ := strings.Cut(metrics, "\ncoe_bridge_lost_event_ids_total ")
		if got, _, _ := strings.Cut(after, "\n"); got == "" || !fits(got) {
			return fmt.Errorf("it is %q", got)
		}
		return nil
	})
}

// TestRestoreThatKeptTheIdentity: the datastore is restored from a backup, and the bridge is not
// informed. Followers that have seen changes after the backup get a snapshot. This holds while their
// event IDs are ahead of the datastore, and also when its revision has passed them.
func TestRestoreThatKeptTheIdentity(t *testing.T) {
	dir, backup := t.TempDir(), filepath.Join(t.TempDir(), "backup")
	b := bridgetest.Start(t, func(c *bridge.Config) { c.Datastore.Dir = dir })
	streams := []string{"node-interfaces=" + restoreNode, "changes=pod:coe"}
	restorePool(t, b)
	require.NoError(t, restorePod(b, 1))
	b.AwaitSync(restorePatience)
	b.Stop()
	require.NoError(t, os.CopyFS(backup, os.DirFS(dir)))

	b.Restart()
	for n := range 20 {
		require.NoError(t, restorePod(b, 100+n))
	}
	b.AwaitSync(restorePatience)
	ids := map[string]string{}
	for _, stream := range streams {
		var snapshot bool
		ids[stream], snapshot = follow(t, b, stream, "", "pod1", "pod119")
		require.True(t, snapshot)
	}
	b.Stop()
	require.NoError(t, os.RemoveAll(dir))
	require.NoError(t, os.CopyFS(dir, os.DirFS(backup)))

	b.Restart()
	for i, stream := range streams {
		_, snapshot := follow(t, b, stream, ids[stream], "pod1")
		require.True(t, snapshot, "%s: the ID %s is ahead", stream, ids[stream])
		awaitLostIDs(t, b, is(fmt.Sprint(i+1)))
	}
	for n := range 60 {
		require.NoError(t, restorePod(b, 200+n))
	}
	b.AwaitSync(restorePatience)
	for _, stream := range streams {
		id, snapshot := follow(t, b, stream, ids[stream], "pod1", "pod259")
		require.True(t, snapshot, "%s: the datastore has grown past the ID %s", stream, ids[stream])
		require.NoError(t, restorePod(b, 300))
		_, snapshot = follow(t, b, stream, id, "pod300")
		require.False(t, snapshot, "%s continues after its new ID", stream)
	}
}

// TestRestoreUnderRunningBridges: an external etcd is restored from a backup while a bridge uses it.
// The bridge ends and logs the reason. After a restart it serves the data of the backup.
func TestRestoreUnderRunningBridges(t *testing.T) {
	e, err := etcd.Run(t.Context(), 1)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	at, err := url.Parse(e.Endpoints()[0])
	require.NoError(t, err)
	data, backup := filepath.Join(filepath.Dir(at.Path), "m0.etcd"), filepath.Join(t.TempDir(), "backup")

	p := bridgetest.Serve(t, "--etcd-endpoints", e.Endpoints()[0])
	restorePool(t, p.Bridge())
	require.NoError(t, restorePod(p.Bridge(), 1))
	p.Bridge().AwaitSync(restorePatience)
	e.Members[0].Kill()
	require.NoError(t, os.CopyFS(backup, os.DirFS(data)))
	require.NoError(t, e.Members[0].Start())
	for n := range 20 {
		bridgetest.Await(t, 50*time.Millisecond, restorePatience, "the datastore answers again", func() error { return restorePod(p.Bridge(), 100+n) })
	}
	stream := "node-interfaces=" + restoreNode
	id, _ := follow(t, p.Bridge(), stream, "", "pod1", "pod119")

	e.Members[0].Kill()
	require.NoError(t, os.RemoveAll(data))
	require.NoError(t, os.CopyFS(data, os.DirFS(backup)))
	require.NoError(t, e.Members[0].Start())
	require.Error(t, p.Wait(), "it ends")
	require.True(t, p.Log().Says(0, "etcd was restored from a backup while this process was using it"), p.Log().Last())

	p.Start()
	_, snapshot := follow(t, p.Bridge(), stream, id, "pod1")
	require.True(t, snapshot)
	awaitLostIDs(t, p.Bridge(), func(n string) bool { return n != "0" })
}
