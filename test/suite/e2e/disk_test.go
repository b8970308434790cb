package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
	"github.com/coe-bridge/coe-bridge/test/lab/serve"
)

const (
	// diskSize is a little more than the embedded etcd needs when it starts.
	diskSize = 448 << 20
	// fullFor is the time for which the disk is full.
	fullFor = 3 * time.Second
)

// TestDiskFull fills the disk of a bridge to the last byte, while others use the bridge.
// Writes are refused with the reason, and reads go on. When there is free disk space again,
// the same process accepts writes. A process that was killed meanwhile starts with all acknowledged
// writes.
func TestDiskFull(t *testing.T) {
	if testing.Short() {
		t.Skip("mounts a file system, as root; make test runs it")
	}
	disk := t.TempDir()
	require.NoError(t, unix.Mount("tmpfs", disk, "tmpfs", 0, fmt.Sprintf("size=%d,mode=0700", diskSize)), "run it as root")
	t.Cleanup(func() { require.NoError(t, unix.Unmount(disk, unix.MNT_DETACH)) })
	args := []string{"--data-dir", filepath.Join(disk, "data")}
	p := bridgetest.Serve(t, args...)
	r := rest{p.Client()}
	r.putPool(t, addressPool{network: "default", subnet: "10.42.0.0/16", gateway: "10.42.0.1"})
	r.putPods(t, numbered("shop", 5)...)
	r.awaitSync(t, converge)

	more := numbered("shop", 7)
	ballast := fillDisk(t, disk)
	for begun := time.Now(); time.Since(begun) < fullFor; {
		requireRefused(t, r, more[5])
		require.Len(t, r.living(t), 5)
	}
	require.NoError(t, os.Remove(ballast))
	r.putPods(t, more[5])
	await(t, converge, "the pod has an address", func() error { return leased(t, r, 6) })

	ballast = fillDisk(t, disk)
	p.Kill()
	w := watchOver(t, append([]string{"--dev"}, args...))
	select {
	case <-w.up:
		t.Log("a bridge can start while the disk is full")
	case <-w.ended:
		t.Log("no bridge can start while the disk is full")
	case <-time.After(converge):
	}
	require.NoError(t, os.Remove(ballast))
	await(t, converge, "the bridge accepts a pod", func() error {
		client := w.client.Load()
		if client == nil {
			return errors.New("no bridge has started")
		}
		r = rest{client}
		status, answer, err := r.do(t.Context(), http.MethodPut, "config/"+podPath(more[6].uid), more[6].body())
		if err == nil && status/100 != 2 {
			err = fmt.Errorf("%d %s", status, answer)
		}
		return err
	})
	await(t, converge, "every pod has its address", func() error { return leased(t, r, 7) })
}

// watchman restarts a bridge whenever it ends, as systemd and Kubernetes do.
type watchman struct {
	up, ended chan struct{} // hold a value after a start, or an end
	client    atomic.Pointer[serve.Client]
}

func watchOver(t *testing.T, args []string) *watchman {
	w := &watchman{up: make(chan struct{}, 1), ended: make(chan struct{}, 1)}
	tell := func(c chan struct{}) {
		select {
		case c <- struct{}{}:
		default:
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })
	running.Go(func() {
		for ctx.Err() == nil {
			if p, err := serve.StartQuietly(ctx, bridgetest.Program(t), args...); err == nil {
				client := serve.NewClient(p.URL, converge)
				w.client.Store(client)
				tell(w.up)
				<-p.Done()
				client.Close()
			}
			tell(w.ended)
		}
	})
	return w
}

// leased returns an error unless n pods have an address.
func leased(t *testing.T, r rest, pods int) error {
	held, err := r.held(t.Context())
	if err == nil && len(held) != pods {
		err = fmt.Errorf("%d leases of %d", len(held), pods)
	}
	return err
}

// fillDisk creates a file that uses all free space of a disk.
func fillDisk(t *testing.T, disk string) (file string) {
	t.Helper()
	f, err := os.Create(filepath.Join(disk, "ballast"))
	require.NoError(t, err)
	defer func() { _ = f.Close() }()
	block := make([]byte, 1<<20)
	for err == nil {
		_, err = f.Write(block)
	}
	require.ErrorIs(t, err, unix.ENOSPC)
	return f.Name()
}

// requireRefused requires that a pod cannot be written, and that the answer has the reason.
func requireRefused(t *testing.T, r rest, p aPod) {
	t.Helper()
	response, err := r.Open(t.Context(), http.MethodPut, "/rests/data/pod:coe/pods="+p.uid, `{"pod:pods":[{"uid":"`+p.uid+`"}]}`)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusServiceUnavailable, response.StatusCode, string(body))
	require.NotEmpty(t, response.Header.Get("Retry-After"))
	require.Contains(t, string(body), `"error-tag":"operation-failed"`)
	require.Contains(t, string(body), "free disk space")
}
