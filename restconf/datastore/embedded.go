package datastore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.etcd.io/etcd/server/v3/lease"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

const (
	// An entry in a body has at least this many bytes. It costs two operations: it
	// is put, and where a container is replaced, what is before it is deleted.
	minEntryBytes = 16
	entryOps      = 2
	// Each names the entry's key in full, as the comparison does: this much longer
	// than the body that it came in may a transaction become.
	txnGrowth   = 24
	txnOverhead = 1 << 20
	// A cluster of one elects itself: it need not wait as one in a network must. But it has to
	// have read what it holds of its log by then: raft looks for changes of its members there
	// when it stands for election, and panics where etcd, which goes on beside it, has dropped
	// entries that raft takes for unread. So nothing shortens the wait at a start.
	heartbeatMs = 20
	electionMs  = 100
	// etcd reads the requests since its last snapshot into memory at a start, and some before
	// it for members that lag. There are none (it takes 0 for its default), and a request may
	// be as large as a body.
	snapshotCount   = 1000
	catchUpEntries  = 1
	snapshotTimeout = time.Second
	noLease         = math.MaxInt64
	// The log is a chain of files of segmentBytes, and two files more: the next one, and one that
	// has no request since the last snapshot. etcd's default is 64 MB.
	segmentBytes = 8 << 20
	keptSegments = 1
)

// embedded is an etcd of one member inside this process. It listens nowhere:
// the only way in is its client.
type embedded struct {
	etcd *embed.Etcd
	lock *os.File
	dir  string
	past *past
}

// embeddedTxnOps is how many operations one body of at most limit bytes can need.
func embeddedTxnOps(limit int64) int { return int(limit/minEntryBytes)*entryOps + 1024 }

func startEmbedded(ctx context.Context, cfg Config) (*embedded, error) {
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the data directory: %w", err)
	}
	lock, err := lockDir(cfg.Dir)
	if err != nil {
		return nil, err
	}
	shortenSegments()
	etcd, err := embed.StartEtcd(embeddedConfig(cfg))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start the embedded etcd in %s: %w", cfg.Dir, err), lock.Close())
	}
	e := &embedded{etcd, lock, cfg.Dir, newPast()}
	select {
	case <-etcd.Server.ReadyNotify():
		return e, nil
	case <-etcd.Server.StopNotify():
		err = errors.New("it stopped")
	case <-ctx.Done():
		err = ctx.Err()
	}
	return nil, errors.Join(fmt.Errorf("start the embedded etcd in %s: %w", cfg.Dir, err), e.Close())
}

// shortenSegments sets the size of a file of the log. etcd has it in a variable of the package.
var shortenSegments = sync.OnceFunc(func() { wal.SegmentSizeBytes = segmentBytes })

// lockDir makes sure that no other process has dir. etcd itself would wait for
// it without a word.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the data directory: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = ErrInUse
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock the data directory %s: %w", dir, err), f.Close())
	}
	return f, nil
}

func embeddedConfig(cfg Config) *embed.Config {
	c := embed.NewConfig()
	c.Name = "coe-bridge"
	c.Dir = filepath.Join(cfg.Dir, "etcd")
	peer := url.URL{Scheme: "unix", Host: c.Name} // a name alone: nobody listens
	c.AdvertisePeerUrls = []url.URL{peer}
	c.InitialCluster = c.Name + "=" + peer.String()
	c.ListenPeerUrls, c.ListenClientUrls, c.AdvertiseClientUrls = nil, nil, nil
	c.TickMs, c.ElectionMs, c.InitialElectionTickAdvance = heartbeatMs, electionMs, false
	c.QuotaBackendBytes = cfg.Quota
	c.MaxTxnOps = uint(cfg.MaxTxnOps)
	c.MaxRequestBytes = uint(min(cfg.BodyLimit*txnGrowth+txnOverhead, math.MaxInt32))
	c.SnapshotCount, c.SnapshotCatchUpEntries = snapshotCount, catchUpEntries
	c.MaxWalFiles = keptSegments
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.New(newZapCore(cfg.Log)))
	return c
}

func (e *embedded) client() *clientv3.Client { return v3client.New(e.etcd.Server) }

// revision returns the last revision.
func (e *embedded) revision() int64 { return e.etcd.Server.KV().Rev() }

// watchFrom is what a watch of the client is, without the goroutines that a server and
// a client hand events on between them: every writer waits for its event.
func (e *embedded) watchFrom(ctx context.Context, prefix string, revision int64, fn func([]*clientv3.Event) error) error {
	stream := e.etcd.Server.Watchable().NewWatchStream()
	defer stream.Close()
	end := clientv3.GetPrefixRangeEnd(prefix)
	if _, err := stream.Watch(ctx, clientv3.AutoWatchID, []byte(prefix), []byte(end), revision); err != nil {
		return fmt.Errorf("watch etcd: %w", err)
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-e.etcd.Server.StopNotify():
			return errors.New("watch etcd: it has stopped")
		case changes := <-stream.Chan():
			if changes.CompactRevision != 0 {
				return fmt.Errorf("watch etcd: %w", rpctypes.ErrCompacted)
			}
			if err := fn(changes.Events); err != nil {
				return err
			}
		}
	}
}

// snapshot makes as many requests that change nothing as it takes for etcd to make a snapshot, and reports whether etcd has
// taken them. Then the next start has no large requests to read. (etcd's own ForceSnapshot races with requests.)
func (e *embedded) snapshot(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, snapshotTimeout)
	defer cancel()
	var all sync.WaitGroup
	var refused atomic.Bool
	for range snapshotCount + 1 {
		all.Go(func() {
			if _, err := e.etcd.Server.LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: noLease}); !errors.Is(err, lease.ErrLeaseNotFound) {
				refused.Store(true)
			}
		})
	}
	all.Wait()
	return !refused.Load()
}

// Close stops etcd and then lets go of the directory.
func (e *embedded) Close() error {
	if free, err := e.free(); err == nil && free >= reserve {
		e.snapshot(context.Background())
	}
	e.etcd.Close()
	return e.lock.Close()
}
