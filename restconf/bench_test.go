package restconf

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/coe-bridge/coe-bridge/restconf/access"
	"github.com/coe-bridge/coe-bridge/restconf/datastore"
	"github.com/coe-bridge/coe-bridge/yang"
)

const benchPod = `{"pods":[{"uid":"%s","name":"busybox1","network-NS":"default","host-ip-address":"192.168.33.12",` +
	`"interface":[{"uid":"7ba91a3a-f17e-2ebb-edec-3bbbea27dca7","ip-address":"10.11.2.28","network-id":"00000000-1111-2222-3333-444444444444",` +
	`"network-type":"VXLAN","segmentation-id":70000}]}]}`

// listen serves h on a loopback port until the benchmark ends.
func listen(b *testing.B, h http.Handler) string {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	server := &http.Server{Handler: h, ReadHeaderTimeout: time.Second}
	var done sync.WaitGroup
	done.Go(func() { _ = server.Serve(l) })
	b.Cleanup(func() {
		_ = server.Close()
		done.Wait()
	})
	return "http://" + l.Addr().String()
}

// chunk is how many requests one side makes before the other has its turn: the
// machine's moods then meet both alike.
const chunk = 100

// compare makes b.N times chunk requests to each of two servers, from so many
// clients, and reports how long ours takes for what bare takes 1 for, and what both
// cost the processor, their clients included.
func compare(b *testing.B, clients int, bare, ours func(i int) *http.Request) {
	b.Helper()
	pool := newClients(clients)
	defer pool.CloseIdleConnections()
	for _, side := range []func(int) *http.Request{bare, ours} { // the first request pays for bcrypt
		load(b, pool, clients, clients, side)
	}
	var took, cost [2]time.Duration
	b.ResetTimer()
	for range b.N {
		for i, side := range []func(int) *http.Request{bare, ours} {
			begin, spent := time.Now(), processorTime(b)
			load(b, pool, clients, chunk, side)
			took[i] += time.Since(begin)
			cost[i] += processorTime(b) - spent
		}
	}
	b.StopTimer()
	requests := float64(b.N * chunk)
	b.ReportMetric(float64(cost[0].Nanoseconds())/requests, "bare-cpu-ns/req")
	b.ReportMetric(float64(cost[1].Nanoseconds())/requests, "ours-cpu-ns/req")
	b.ReportMetric(float64(cost[1])/float64(cost[0]), "cpu-ours/bare")
	b.ReportMetric(float64(took[0].Nanoseconds())/requests, "bare-ns/req")
	b.ReportMetric(float64(took[1].Nanoseconds())/requests, "ours-ns/req")
	b.ReportMetric(float64(took[1])/float64(took[0]), "ours/bare")
	b.ReportMetric(0, "ns/op")
}

// processorTime is what this process has spent until now.
func processorTime(b testing.TB) time.Duration {
	b.Helper()
	var used unix.Rusage
	require.NoError(b, unix.Getrusage(unix.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func newClients(n int) *http.Transport { return &http.Transport{MaxIdleConnsPerHost: n} }

// load makes n requests from so many clients, each with its own connection.
func load(b *testing.B, pool *http.Transport, clients, n int, request func(i int) *http.Request) {
	b.Helper()
	var next atomic.Int64
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			for i := int(next.Add(1)); i <= n; i = int(next.Add(1)) {
				resp, err := pool.RoundTrip(request(i))
				if err != nil {
					b.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
				if resp.StatusCode >= 300 {
					b.Errorf("status %d", resp.StatusCode)
				}
			}
		})
	}
	all.Wait()
}

func get(url string) func(int) *http.Request {
	return func(int) *http.Request {
		r, _ := http.NewRequest(http.MethodGet, url, http.NoBody)
		r.SetBasicAuth("admin", "admin")
		return r
	}
}

func putPods(url string) func(int) *http.Request {
	return func(i int) *http.Request {
		uid := fmt.Sprintf("9f2a6d5e-0000-4000-8000-%012d", i%1000)
		r, _ := http.NewRequest(http.MethodPut, url+"/restconf/config/pod:coe/pods/"+uid, strings.NewReader(fmt.Sprintf(benchPod, uid)))
		r.SetBasicAuth("admin", "admin")
		r.Header.Set("Content-Type", "application/json")
		return r
	}
}

// benchBed is a server with bcrypt credentials, as in production.
func benchBed(b *testing.B) *bed {
	path := filepath.Join(b.TempDir(), "users")
	hash, err := access.HashPassword("admin", access.Bcrypt)
	require.NoError(b, err)
	require.NoError(b, os.WriteFile(path, []byte("admin:writer:"+hash), 0o600))
	opened, err := access.Open(access.Config{UsersFile: path}, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	require.NoError(b, err)
	return newBed(b, func(c *Config) { c.Auth = opened })
}

// BenchmarkGet compares the GET of one pod with a bare handler that writes the
// same bytes: at most 3 times its time is wanted.
func BenchmarkGet(b *testing.B) {
	bed := benchBed(b)
	at := pods + uid1
	body := fmt.Sprintf(benchPod, uid1)
	require.Equal(b, 201, bed.do("PUT", at, body).status)
	answer := []byte(bed.do("GET", at, "").body)
	bare := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(answer) })
	compare(b, 1, get(listen(b, bare)+at), get(listen(b, bed)+at))
}

// BenchmarkPut compares the durable PUT of a pod with a bare handler that decodes
// the same body with encoding/json and makes the same etcd put: at least 0.75
// of its rate is wanted.
func BenchmarkPut(b *testing.B) {
	for _, clients := range []int{1, 16} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			compare(b, clients, putPods(listen(b, barePut(b))), putPods(listen(b, benchBed(b))))
		})
	}
}

// barePut is the handler to compare with, over an etcd of the same kind.
func barePut(b *testing.B) http.Handler {
	b.Helper()
	c := embed.NewConfig()
	c.Dir, c.Name = b.TempDir(), "bare"
	peer := url.URL{Scheme: "unix", Host: c.Name}
	c.AdvertisePeerUrls, c.InitialCluster = []url.URL{peer}, c.Name+"="+peer.String()
	c.ListenPeerUrls, c.ListenClientUrls, c.AdvertiseClientUrls = nil, nil, nil
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	etcd, err := embed.StartEtcd(c)
	require.NoError(b, err)
	b.Cleanup(etcd.Close)
	<-etcd.Server.ReadyNotify()
	client := v3client.New(etcd.Server)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Pods []struct {
				UID         string `json:"uid"`
				Name        string `json:"name"`
				NetworkNS   string `json:"network-NS"`
				HostAddress string `json:"host-ip-address"`
				Interface   []struct {
					UID            string `json:"uid"`
					Address        string `json:"ip-address"`
					NetworkID      string `json:"network-id"`
					NetworkType    string `json:"network-type"`
					SegmentationID uint32 `json:"segmentation-id"`
				} `json:"interface"`
			} `json:"pods"`
		}
		content, err := io.ReadAll(r.Body)
		if err == nil {
			err = json.Unmarshal(content, &body)
		}
		if err == nil {
			_, err = client.Put(r.Context(), "/bare/"+body.Pods[0].UID, string(content))
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
}

// BenchmarkGetAll reads 10,000 pods at once.
func BenchmarkGetAll(b *testing.B) {
	bed := newBed(b)
	require.NoError(b, bed.store.Update(context.Background(), func(tx *datastore.Tx) error {
		list := bed.cfg.Schema.Module("pod").Child("coe").Child("", "pods")
		tx.Put(list.Parent, nil, []byte(`{}`))
		for i := range 10000 {
			uid := fmt.Sprintf("9f2a6d5e-0000-4000-8000-%012d", i)
			raw := fmt.Sprintf(benchPod, uid)
			tx.Put(list, []string{uid}, []byte(raw[len(`{"pods":[`):len(raw)-2]))
		}
		return nil
	}))
	for name, path := range map[string]string{"stored": coe, "parsed": coe + "?depth=unbounded&prettyPrint=true"} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(bed.do("GET", path, "").body)))
			pool := newClients(1)
			defer pool.CloseIdleConnections()
			load(b, pool, 1, b.N, get(listen(b, bed)+path))
		})
	}
}

// BenchmarkDecode is the part of a PUT that is yang's.
func BenchmarkDecode(b *testing.B) {
	schema, err := yang.Load()
	require.NoError(b, err)
	list := schema.Module("pod").Child("coe").Child("", "pods")
	body := fmt.Appendf(nil, benchPod, uid1)
	for b.Loop() {
		data, err := schema.DecodeJSON(body, list.Parent, "/pod:coe", yang.Lenient)
		require.NoError(b, err)
		require.NoError(b, schema.Validate(data[0], "/pod:coe", nil))
		var buf bytes.Buffer
		yang.EncodeObject(&buf, data[0])
	}
}
