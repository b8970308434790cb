package datastore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
)

// A connection that is silent for this long is probed, and given up when the
// probe is not answered.
const (
	keepAlive        = 5 * time.Second
	keepAliveTimeout = 3 * time.Second
)

// Bounds of the time between attempts to connect.
const (
	minRedial = 100 * time.Millisecond
	maxRedial = time.Second
)

// dial makes a client of an external cluster. It connects on first use.
func dial(cfg Config) (*clientv3.Client, error) {
	password, err := readPassword(cfg.PasswordFile)
	if err != nil {
		return nil, err
	}
	options := []grpc.DialOption{grpc.WithConnectParams(redial(cfg))}
	if cfg.TLS != nil && !inClear(cfg.Endpoints[0]) {
		options = append(options, grpc.WithTransportCredentials(renewed{credentials.NewTLS(cfg.TLS()), cfg.TLS}))
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints:            cfg.Endpoints,
		Username:             cfg.Username,
		Password:             password,
		DialTimeout:          cfg.Timeout,
		DialKeepAliveTime:    keepAlive,
		DialKeepAliveTimeout: keepAliveTimeout,
		DialOptions:          options,
		MaxCallSendMsgSize:   math.MaxInt32, // the servers set the limit
		Logger:               zap.New(newZapCore(cfg.Log)),
	})
	if err != nil {
		return nil, classify("connect to etcd at --etcd-endpoints "+strings.Join(cfg.Endpoints, ","), err)
	}
	return client, nil
}

// inClear reports whether the scheme of an endpoint stands for connections without TLS, by the
// rule of etcd's client: the first endpoint decides for all.
func inClear(endpoint string) bool {
	scheme, _, _ := strings.Cut(endpoint, ":")
	return scheme == "http" || scheme == "unix"
}

// renewed is TLS credentials that have each handshake use the configuration of that moment.
type renewed struct {
	credentials.TransportCredentials
	config func() *tls.Config
}

// ClientHandshake implements credentials.TransportCredentials.
func (r renewed) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return credentials.NewTLS(r.config()).ClientHandshake(ctx, authority, conn)
}

// Clone implements credentials.TransportCredentials.
func (r renewed) Clone() credentials.TransportCredentials { return r }

// unreached says of an etcd that does not answer where it was looked for.
func (c Config) unreached(err error) error {
	if len(c.Endpoints) == 0 || !errors.Is(err, ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w; does etcd answer at --etcd-endpoints %s?", err, strings.Join(c.Endpoints, ","))
}

// redial has a server that was away be found soon after it is back, however long it was.
func redial(cfg Config) grpc.ConnectParams {
	pause := backoff.DefaultConfig
	pause.BaseDelay, pause.MaxDelay = minRedial, maxRedial
	return grpc.ConnectParams{Backoff: pause, MinConnectTimeout: cfg.Timeout}
}

func readPassword(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read the etcd password: %w", err)
	}
	line, _, _ := strings.Cut(string(content), "\n")
	return strings.TrimSuffix(line, "\r"), nil
}
