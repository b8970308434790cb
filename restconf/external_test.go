package restconf

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/coe-bridge/coe-bridge/restconf/datastore"
	"github.com/coe-bridge/coe-bridge/restconf/tree"
	"github.com/coe-bridge/coe-bridge/yang"
)

// One request is one transaction, also where the etcd servers are others': what
// they don't take is refused as a whole, with the flag that would help.
func TestExternalEtcd(t *testing.T) {
	dir, err := os.MkdirTemp("", "rc") // short: a socket's name has little room
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	socket := url.URL{Scheme: "unix", Path: filepath.Join(dir, "sock")}
	c := embed.NewConfig()
	c.Dir, c.Name = filepath.Join(dir, "etcd"), "x"
	peer := url.URL{Scheme: "unix", Host: c.Name}
	c.AdvertisePeerUrls, c.InitialCluster, c.ListenPeerUrls = []url.URL{peer}, c.Name+"="+peer.String(), nil
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{socket}, []url.URL{socket}
	c.MaxRequestBytes = 64 << 10
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	etcd, err := embed.StartEtcd(c)
	require.NoError(t, err)
	t.Cleanup(etcd.Close)
	<-etcd.Server.ReadyNotify()

	schema, err := yang.Load()
	require.NoError(t, err)
	store, err := datastore.Open(t.Context(), datastore.Config{Schema: schema, Endpoints: []string{socket.String()}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	s, err := New(Config{Config: tree.Config{Schema: schema, Datastore: store}, Auth: FixedUsers{"admin": "admin"}})
	require.NoError(t, err)
	b := &bed{s, t, store}

	many := func(n int, name string) string {
		entries := make([]string, n)
		for i := range entries {
			entries[i] = fmt.Sprintf(`{"uid":"9f2a6d5e-0000-4000-8000-%012d","name":%q}`, i, name)
		}
		return `{"pods":[` + strings.Join(entries, ",") + `]}`
	}
	for flag, body := range map[string]string{"--max-txn-ops": many(200, "x"), "--max-request-bytes": many(20, strings.Repeat("x", 10000))} {
		got := b.do("POST", coe, body)
		require.Equal(t, 413, got.status)
		require.Equal(t, "too-big", got.tag())
		require.Contains(t, got.body, flag)
		require.Equal(t, 404, b.do("GET", coe, "").status)
	}
	require.Equal(t, 204, b.do("POST", coe, many(100, "x")).status)
	require.Equal(t, 200, b.do("PUT", coe, many(20, "y")).status)
	require.Equal(t, 20, strings.Count(b.do("GET", coe, "").body, `"name":"y"`))
	require.Equal(t, 200, b.do("DELETE", coe, "").status)
}

// The embedded etcd takes many more operations at once than etcd does by default.
func TestManyEntriesInOneBody(t *testing.T) {
	b := newBed(t)
	var body strings.Builder
	body.WriteString(`{"pods":[{"uid":"` + uid1 + `"}`)
	for i := range 5000 {
		fmt.Fprintf(&body, `,{"uid":"00000000-0000-4000-8000-%012d"}`, i)
	}
	body.WriteString(`]}`)
	require.Less(t, body.Len(), DefaultBodyLimit)
	require.Equal(t, 204, b.do("POST", coe, body.String()).status)
	require.Len(t, b.store.Tree(b.cfg.Schema.Module("pod").Child("coe")), 5002)
	require.Equal(t, 200, b.do("PUT", coe, `{"coe":{"pods":[{"uid":"`+uid1+`"}]}}`).status)
	require.JSONEq(t, `{"coe":{"pods":[{"uid":"`+uid1+`"}]}}`, b.do("GET", coe, "").body)
}
