package restconf

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/restconf/datastore"
)

// BenchmarkGetExternal compares GETs of what Kubernetes says with the same GETs of
// the same data from the datastore: at most 3 times their time is wanted.
func BenchmarkGetExternal(b *testing.B) {
	const many = 5000
	external, stored := newWorld(b), newWorld(b)
	uids := make([]string, many)
	for i := range uids {
		uids[i] = fmt.Sprintf("9f2a6d5e-0000-4000-8000-%012d", i)
	}
	external.speak(uids...)
	require.NoError(b, stored.store.Update(b.Context(), func(tx *datastore.Tx) error {
		list := stored.cfg.Schema.Module("pod").Child("coe").Child("", "pods")
		tx.Put(list.Parent, nil, []byte(`{}`))
		for _, uid := range uids {
			tx.Put(list, []string{uid}, []byte(externalPod(uid)))
		}
		return nil
	}))
	for name, path := range map[string]string{
		"container": coe, "list": coeRFC + "/pods", "one": pods + uids[many/2], "fields": coeRFC + "?fields=pods/name",
	} {
		b.Run(name, func(b *testing.B) {
			require.Equal(b, stored.do("GET", path, "").body, external.do("GET", path, "").body)
			chunk := 1
			if name == "one" {
				chunk = many
			}
			var took [2]time.Duration
			urls := []string{listen(b, stored), listen(b, external)}
			pool := newClients(1)
			defer pool.CloseIdleConnections()
			b.ResetTimer()
			for range b.N {
				for i, url := range urls {
					begin := time.Now()
					load(b, pool, 1, chunk, get(url+path))
					took[i] += time.Since(begin)
				}
			}
			requests := float64(b.N * chunk)
			b.ReportMetric(float64(took[0].Nanoseconds())/requests, "stored-ns/req")
			b.ReportMetric(float64(took[1].Nanoseconds())/requests, "external-ns/req")
			b.ReportMetric(float64(took[1])/float64(took[0]), "external/stored")
			b.ReportMetric(0, "ns/op")
		})
	}
}
