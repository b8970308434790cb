package datastore

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
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
	client, err := clientv3.New(clientv3.Config{
		Endpoints:            cfg.Endpoints,
		TLS:                  cfg.TLS,
		Username:             cfg.Username,
		Password:             password,
		DialTimeout:          cfg.Timeout,
		DialKeepAliveTime:    keepAlive,
		DialKeepAliveTimeout: keepAliveTimeout,
		DialOptions:          []grpc.DialOption{grpc.WithConnectParams(redial(cfg))},
		MaxCallSendMsgSize:   math.MaxInt32, // the servers set the limit
		Logger:               zap.New(newZapCore(cfg.Log)),
	})
	if err != nil {
		return nil, classify("connect to etcd at --etcd-endpoints "+strings.Join(cfg.Endpoints, ","), err)
	}
	return client, nil
}

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
