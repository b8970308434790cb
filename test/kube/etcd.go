package kube

import (
	"context"
	"fmt"
	"net"
	"path/filepath"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// CompactEtcd forgets all revisions of etcd but the current one. Once the API server
// was started again it answers 410 (Expired) to watches from an older revision and to
// the continuation of older lists; until then it answers both from memory.
func (c *ControlPlane) CompactEtcd(ctx context.Context) error {
	err := c.withEtcd(ctx, func(ctx context.Context, etcd *clientv3.Client) error {
		now, err := etcd.Get(ctx, "compact")
		if err != nil {
			return err
		}
		_, err = etcd.Compact(ctx, now.Header.Revision, clientv3.WithCompactPhysical())
		return err
	})
	if err != nil {
		return fmt.Errorf("compact etcd: %w", err)
	}
	return nil
}

// etcdReady tells whether etcd has a leader and answers. It first looks whether
// anyone listens, since etcd's client tries again only after a second.
func (c *ControlPlane) etcdReady(ctx context.Context) error {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", filepath.Join(c.dir, etcdSocket))
	if err != nil {
		return err
	}
	if err := conn.Close(); err != nil {
		return err
	}
	return c.withEtcd(ctx, func(ctx context.Context, etcd *clientv3.Client) error {
		_, err := etcd.Get(ctx, "ready")
		return err
	})
}

func (c *ControlPlane) withEtcd(ctx context.Context, f func(context.Context, *clientv3.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	etcd, err := clientv3.New(clientv3.Config{
		Endpoints: []string{"unix://" + filepath.Join(c.dir, etcdSocket)},
		Logger:    zap.NewNop(),
	})
	if err != nil {
		return err
	}
	defer func() { _ = etcd.Close() }()
	return f(ctx, etcd)
}
