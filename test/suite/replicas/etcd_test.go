package replicas

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
	"github.com/coe-bridge/coe-bridge/test/lab/etcd"
)

// TestMain runs this program as an etcd server if a test has started it as one.
func TestMain(m *testing.M) {
	served, err := etcd.Serve()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if !served {
		os.Exit(bridgetest.Main(m))
	}
}

// cluster is the etcd of a test.
type cluster struct {
	*etcd.Cluster
	t *testing.T
}

// startEtcd starts a cluster with a number of members. It ends with the test.
func startEtcd(t *testing.T, members int) *cluster {
	t.Helper()
	c, err := etcd.Run(t.Context(), members)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return &cluster{c, t}
}

// client returns a client of the whole cluster.
func (c *cluster) client() *clientv3.Client {
	c.t.Helper()
	client, err := c.Client()
	require.NoError(c.t, err)
	c.t.Cleanup(func() { _ = client.Close() })
	return client
}

// deleteElectionKey ends the leadership. The leader is not informed.
func (c *cluster) deleteElectionKey() {
	c.t.Helper()
	client := c.client()
	held, err := client.Get(c.t.Context(), electionPrefix, clientv3.WithFirstCreate()...)
	require.NoError(c.t, err)
	require.Len(c.t, held.Kvs, 1)
	_, err = client.Delete(c.t.Context(), string(held.Kvs[0].Key))
	require.NoError(c.t, err)
}

// leader returns the member that leads the etcd cluster.
func (c *cluster) leader() *etcd.Member {
	c.t.Helper()
	client := c.client()
	var found *etcd.Member
	await(c.t, patience, "a member leads", func() error {
		for i, endpoint := range c.Endpoints() {
			st, err := client.Status(c.t.Context(), endpoint)
			if err == nil && st.Leader == st.Header.MemberId {
				found = c.Members[i]
				return nil
			}
		}
		return errors.New("no member reports that it leads")
	})
	return found
}
