package kube

import (
	"context"
	"fmt"
	"net"
	"path/filepath"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// CompactEtcd compacts etcd to its current revision. After a restart of the API server, older watches and the
// continuation of older lists get 410 (Expired). Until then the API server answers them from memory.
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

// etcdReady fails if etcd has no leader or does not answer. It first checks that the port is open,
// because etcd's client retries only after a second.
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
