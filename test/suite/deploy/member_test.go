package deploy

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// replace replaces a lost node of etcd by a new node, as docs/kubernetes.md says.
func (c *cluster) replace(t *testing.T, lost *running, name, address string) {
	t.Helper()
	from, to := lost.kubelet, c.kubelets[name]
	lost.end(t, syscall.SIGKILL)
	c.run(t, "kubectl label node "+from.node+" coe-bridge.io/etcd-")
	c.run(t, strings.ReplaceAll(c.here(commands(t, "variables", "functions", "renew")), from.address, to.address))

	etcd := c.etcd(t)
	eventually(t, func() error {
		list, err := etcd.MemberList(t.Context())
		if err != nil {
			return err
		}
		at := slices.IndexFunc(list.Members, func(m *etcdserverpb.Member) bool { return m.Name == from.node })
		if at < 0 { // an earlier request that failed has removed it
			return nil
		}
		_, err = etcd.MemberRemove(t.Context(), list.Members[at].ID)
		return err
	})
	eventually(t, func() error {
		_, err := etcd.MemberAdd(t.Context(), []string{"https://" + to.address + ":12380"})
		if errors.Is(err, rpctypes.ErrPeerURLExist) {
			return nil
		}
		return err
	})

	c.edit(t, "deploy/kubernetes/mine", from.node+"=", name+"=", from.address, to.address,
		"ETCD_INITIAL_CLUSTER=", "ETCD_INITIAL_CLUSTER_STATE=existing\nETCD_INITIAL_CLUSTER=")
	c.run(t, commands(t, "apply"))
	c.join(t, name, address)
	c.run(t, "kubectl label node "+name+" coe-bridge.io/etcd=")
	c.start(t, c.podOf(t, "etcd", name))
}

// eventually repeats a request until etcd accepts it. While a member is lost, etcd can refuse changes
// of its members.
func eventually(t *testing.T, request func() error) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) { require.NoError(c, request()) }, patience, poll)
}

// etcd returns a client with the certificate of the bridges.
func (c *cluster) etcd(t *testing.T) *clientv3.Client {
	t.Helper()
	file := func(name string) string { return filepath.Join(c.dir, "certificates", name) }
	info := transport.TLSInfo{
		TrustedCAFile: file("coe-bridge-etcd-ca.crt"),
		CertFile:      file("coe-bridge-etcd-client.crt"), KeyFile: file("coe-bridge-etcd-client.key"),
	}
	trust, err := info.ClientConfig()
	require.NoError(t, err)
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{"https://" + c.kubelets[nodes[0].name].address + ":12379"}, TLS: trust, DialTimeout: patience,
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}
