// Package datastore keeps the configuration tree in etcd: embedded in this
// process by default, an external cluster when endpoints are given.
//
// The tree is stored in units (see Unit). All of them are mirrored in memory and
// kept up to date by one watch, so reads never wait for etcd. A write is one etcd
// transaction, made if everything that it has read is unchanged: etcd compares its
// revisions or, if only this process writes, the mirror tells (see txOrder). It
// returns when etcd has it on disk and the mirror shows it. Beside the tree the package
// keeps the records of the elected leader, fenced by its election key.
//
// It knows schema nodes and bytes, but neither RESTCONF nor what the data mean.
package datastore

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/coe-bridge/coe-bridge/yang"
)

// The prefixes of all keys of ours.
const (
	root           = "/coe-bridge/v1/"
	configPrefix   = root + "config/"
	recordsPrefix  = root + "records/"
	electionPrefix = root + "election"
	identityKey    = root + "identity"
	defaultsKey    = root + "defaults"
)

// Defaults of Config.
const (
	defaultTimeout   = 10 * time.Second
	defaultBodyLimit = 8 << 20
	defaultLeaseTTL  = 3 * time.Second
	aloneLeaseTTL    = 30 * time.Second
	defaultTxnOps    = 128 // what an etcd server takes unless told otherwise
)

// restoredFile in Config.Dir marks a folder that was restored from a backup. Open removes
// the mark.
const restoredFile = "restored"

// identityLength is how many letters make an identity: 60 bits.
const identityLength = 12

// DefaultQuota is the most that etcd's authors advise.
const DefaultQuota = 8 << 30

// Config says where the data live.
type Config struct {
	Schema *yang.Schema

	// Dir holds the embedded etcd's data. It is used when Endpoints is empty. A file
	// named restored in it says that they were put back from a backup.
	Dir string
	// Quota bounds the embedded etcd's database in bytes; 0 means DefaultQuota.
	Quota int64
	// BodyLimit is the largest request body that the embedded etcd must be able
	// to take in one transaction; 0 means 8 MiB.
	BodyLimit int64

	// Endpoints of an external etcd cluster, for example "https://10.0.0.1:2379".
	Endpoints []string
	// TLS returns the configuration of a new connection to them. Nil: no TLS, or the
	// system's CAs.
	TLS      func() *tls.Config
	Username string
	// PasswordFile holds the password on its first line.
	PasswordFile string
	// MaxTxnOps is the external servers' --max-txn-ops; 0 means 128, etcd's default.
	MaxTxnOps int

	// Defaults names the defaults of this version. A datastore keeps the ones with which it was created.
	Defaults string
	// Timeout bounds every call to etcd; 0 means 10 s.
	Timeout time.Duration
	// LeaseTTL is how long leadership outlives a leader that fell silent. 0 means 3 s,
	// and 30 s with the embedded etcd, where nobody else could lead.
	LeaseTTL time.Duration
	// Valid reports whether a value can be that of a Unit. A value that cannot is not
	// handed on; the unit is Damaged. nil takes every value.
	Valid func(raw []byte) bool
	Log   *slog.Logger
}

// Datastore is an open datastore. It is safe for use by many goroutines.
type Datastore struct {
	cfg     Config
	log     *slog.Logger
	process string
	client  *clientv3.Client
	server  *embedded // nil: etcd is external
	disk    diskSpace
	layout  *layout
	mirror  *mirror
	// identity distinguishes the revisions of this datastore from any other's.
	identity string
	defaults string
	// retries holds a place for the one Update that tries again.
	retries chan struct{}
	order   *txOrder // nil: other processes write too

	stop context.CancelFunc
	done sync.WaitGroup
}

// Open opens the datastore and returns when its mirror is complete. ctx bounds
// the opening alone; Close ends the datastore.
func Open(ctx context.Context, cfg Config) (*Datastore, error) {
	cfg = cfg.withDefaults()
	d := &Datastore{cfg: cfg, log: cfg.Log, process: processName(), layout: newLayout(cfg.Schema), retries: make(chan struct{}, 1)}
	if err := d.connect(ctx); err != nil {
		return nil, err
	}
	d.mirror = newMirror()
	if err := d.identify(ctx); err != nil {
		return nil, errors.Join(err, d.disconnect())
	}
	d.beginHistory(ctx)
	if err := d.start(ctx); err != nil {
		return nil, errors.Join(err, d.disconnect())
	}
	return d, nil
}

func (c Config) withDefaults() Config {
	if c.Timeout <= 0 {
		c.Timeout = defaultTimeout
	}
	if c.BodyLimit <= 0 {
		c.BodyLimit = defaultBodyLimit
	}
	if c.LeaseTTL <= 0 && len(c.Endpoints) == 0 {
		c.LeaseTTL = aloneLeaseTTL
	}
	if c.LeaseTTL <= 0 {
		c.LeaseTTL = defaultLeaseTTL
	}
	if c.MaxTxnOps <= 0 {
		c.MaxTxnOps = defaultTxnOps
	}
	if len(c.Endpoints) == 0 {
		c.MaxTxnOps = embeddedTxnOps(c.BodyLimit)
	}
	c.Quota = cmp.Or(c.Quota, DefaultQuota)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

func (d *Datastore) connect(ctx context.Context) error {
	if len(d.cfg.Endpoints) > 0 {
		client, err := dial(d.cfg)
		d.client = client
		return err
	}
	server, err := startEmbedded(ctx, d.cfg)
	if err != nil {
		return err
	}
	d.client, d.server, d.order = server.client(), server, newTxOrder()
	if err := d.revive(ctx); err != nil {
		return errors.Join(err, d.disconnect())
	}
	return nil
}

// revive removes what the last run of the embedded etcd left behind.
func (d *Datastore) revive(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.Timeout)
	defer cancel()
	if err := d.forgetElections(ctx); err != nil {
		return err
	}
	if err := d.forgetIdentity(ctx); err != nil {
		return err
	}
	// A database that was full takes data again, until the quota of this run is reached.
	_, err := d.client.AlarmDisarm(ctx, &clientv3.AlarmMember{})
	return classify("end the alarm of a full database", err)
}

// start fills the mirror and keeps it up to date from then on.
func (d *Datastore) start(ctx context.Context) error {
	if err := d.relist(ctx); err != nil {
		return fmt.Errorf("read the datastore: %w", err)
	}
	run, stop := context.WithCancel(context.Background())
	d.stop = stop
	d.done.Go(func() { d.watch(run) })
	if d.Shared() {
		d.done.Go(func() { d.keepVerifying(run) })
	} else {
		d.done.Go(func() { d.boundPast(run) })
	}
	return nil
}

// Close ends the watch and, where etcd is embedded, stops it cleanly. Followers
// and waiting writes return ErrClosed.
func (d *Datastore) Close() error {
	d.stop()
	d.done.Wait()
	d.mirror.end(ErrClosed)
	return d.disconnect()
}

func (d *Datastore) disconnect() error {
	err := d.client.Close()
	if d.server == nil {
		return err
	}
	// The in-process client has no connection; what its Close says is that its
	// context ended.
	return d.server.Close()
}

// Revision is the datastore's revision that the mirror shows.
func (d *Datastore) Revision() int64 { return d.mirror.revision() }

// Shared reports whether other processes may write to the datastore.
func (d *Datastore) Shared() bool { return d.server == nil }

// Identity is the name of the datastore. It gets a new one when it is created or restored
// from a backup. Revisions of datastores with different identities cannot be compared: a
// datastore that was deleted and created again counts from the beginning.
func (d *Datastore) Identity() string { return d.identity }

// Defaults returns Config.Defaults of the process that created the datastore. It is empty if that was an earlier version, which knew none.
func (d *Datastore) Defaults() string { return d.defaults }

// identify reads the identity and the defaults, or gives them.
func (d *Datastore) identify(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.Timeout)
	defer cancel()
	// Read first: an etcd that is full refuses what could put.
	err := d.readIdentity(ctx)
	if err == nil && d.identity == "" {
		err = d.create(ctx)
	}
	return d.cfg.unreached(classify("read the datastore's identity", err))
}

func (d *Datastore) readIdentity(ctx context.Context) error {
	resp, err := d.client.Txn(ctx).Then(clientv3.OpGet(identityKey), clientv3.OpGet(defaultsKey)).Commit()
	if err != nil {
		return err
	}
	for n, value := range []*string{&d.identity, &d.defaults} {
		if kept := resp.Responses[n].GetResponseRange().Kvs; len(kept) > 0 {
			*value = string(kept[0].Value)
		}
	}
	return nil
}

// create gives a datastore an identity, and an empty one the defaults too, unless another process was faster. A restored datastore is not
// empty, and has no identity.
func (d *Datastore) create(ctx context.Context) error {
	empty := clientv3.Compare(clientv3.CreateRevision(root).WithPrefix(), "=", 0)
	if _, err := d.client.Txn(ctx).If(empty).Then(clientv3.OpPut(defaultsKey, d.cfg.Defaults)).Commit(); err != nil {
		return err
	}
	unnamed := clientv3.Compare(clientv3.CreateRevision(identityKey), "=", 0)
	identity := strings.ToLower(rand.Text()[:identityLength])
	if _, err := d.client.Txn(ctx).If(unnamed).Then(clientv3.OpPut(identityKey, identity)).Commit(); err != nil {
		return err
	}
	return d.readIdentity(ctx)
}

// forgetIdentity gives a datastore that was restored from a backup another identity: it uses
// some revisions a second time, for other changes.
func (d *Datastore) forgetIdentity(ctx context.Context) error {
	mark := filepath.Join(d.cfg.Dir, restoredFile)
	if _, err := os.Stat(mark); errors.Is(err, os.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("see whether the datastore was restored: %w", err)
	}
	if _, err := d.client.Delete(ctx, identityKey); err != nil {
		return classify("forget the identity of a restored datastore", err)
	}
	if err := os.Remove(mark); err != nil {
		return fmt.Errorf("take note that the datastore was restored: %w", err)
	}
	d.log.Info("datastore was restored: it gets another identity")
	return nil
}

// Ping asks etcd whether it can serve: nil when a majority answers in time.
func (d *Datastore) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.Timeout)
	defer cancel()
	reached := d.mirror.revision()
	resp, err := d.client.Get(ctx, root, clientv3.WithCountOnly())
	if err != nil {
		return classify("reach etcd", err)
	}
	return d.verifyRevision(reached, resp.Header.Revision)
}
