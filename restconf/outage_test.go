package restconf

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/restconf/datastore"
	"github.com/coe-bridge/coe-bridge/restconf/tree"
	"github.com/coe-bridge/coe-bridge/test/lab/etcd"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
	"github.com/coe-bridge/coe-bridge/yang"
)

// TestMain makes this program an etcd server where a test has started it as one.
func TestMain(m *testing.M) {
	served, err := etcd.Serve()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if !served {
		os.Exit(m.Run())
	}
}

// deadline is the Timeout of a server whose datastore does not answer.
const deadline = 3 * time.Second

// outage is a server on an etcd that goes away, and writers that note what was
// acknowledged.
type outage struct {
	*bed
	member *etcd.Member
	made   atomic.Int64 // names of pods

	mu           sync.Mutex
	acknowledged []string
}

func newOutage(t *testing.T, timeout time.Duration) (o *outage, again func() *datastore.Datastore) {
	t.Helper()
	cluster, err := etcd.Run(t.Context(), 1)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cluster.Close()) })
	schema, err := yang.Load()
	require.NoError(t, err)
	again = func() *datastore.Datastore {
		store, err := datastore.Open(t.Context(), datastore.Config{Schema: schema, Endpoints: cluster.Endpoints()})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, store.Close()) })
		return store
	}
	store := again()
	s, err := New(Config{Config: tree.Config{Schema: schema, Datastore: store}, Auth: FixedUsers{"admin": "admin"}, Timeout: timeout})
	require.NoError(t, err)
	o = &outage{bed: &bed{s, t, store}, member: cluster.Members[0]}
	o.isBack()
	return o, again
}

// uid is another one each time.
func (o *outage) uid() string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", o.made.Add(1)) }

// put writes a pod of its own and returns the answer.
func (o *outage) put() answer {
	uid := o.uid()
	got := o.do(http.MethodPut, podsRFC+uid, podRFC(uid))
	if got.status == http.StatusCreated {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.acknowledged = append(o.acknowledged, uid)
	}
	return got
}

// isBack waits until a write is acknowledged.
func (o *outage) isBack() {
	o.t.Helper()
	require.Eventually(o.t, func() bool { return o.put().status == http.StatusCreated }, patience.Patience, 10*time.Millisecond)
}

// write has so many writers write until the function that it returns is called. Each is
// answered, well or with the reason why not.
func (o *outage) write(writers int) (stop func()) {
	var ended atomic.Bool
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			for !ended.Load() {
				begun := time.Now()
				got := o.put()
				assert.Less(o.t, time.Since(begun), patience.Patience)
				if got.status != http.StatusCreated {
					o.isAway(got)
				}
			}
		})
	}
	return func() {
		ended.Store(true)
		all.Wait()
	}
}

// isAway requires the answer of a datastore that is not there.
func (o *outage) isAway(got answer) {
	o.t.Helper()
	assert.Equal(o.t, http.StatusServiceUnavailable, got.status, got.body)
	assert.Equal(o.t, "operation-failed", got.tag())
	assert.Contains(o.t, got.firstError()["error-message"], "the datastore is not available")
	assert.NotEmpty(o.t, got.header.Get("Retry-After"))
}

// An etcd is killed, or hangs, under load. Writers get an error in time, readers are
// served, and all goes on when etcd is back. No acknowledged write is lost.
func TestDatastoreGone(t *testing.T) {
	for name, way := range map[string]struct {
		begin, end func(*testing.T, *etcd.Member)
	}{
		"killed": {func(_ *testing.T, m *etcd.Member) { m.Kill() }, func(t *testing.T, m *etcd.Member) { require.NoError(t, m.Start()) }},
		"halted": {signalling(syscall.SIGSTOP), signalling(syscall.SIGCONT)},
	} {
		t.Run(name, func(t *testing.T) {
			o, again := newOutage(t, deadline)
			stop := o.write(8)
			for range 3 {
				way.begin(t, o.member)
				refused := o.put()
				for refused.status == 201 { // it was on its way
					refused = o.put()
				}
				o.isAway(refused)
				require.Equal(t, 200, o.do("GET", coeRFC, "").status)
				o.isAway(o.do("PATCH", coeRFC, strings.ReplaceAll(`{"ietf-yang-patch:yang-patch":{"patch-id":"p","edit":[
					{"edit-id":"1","operation":"create","target":"/pods=U","value":{"pod:pods":[{"uid":"U"}]}}]}}`, "U", o.uid()),
					header("Content-Type", "application/yang-patch+json")))
				way.end(t, o.member)
				o.isBack()
			}
			stop()
			require.Greater(t, len(o.acknowledged), 8)
			stored := again()
			list := o.cfg.Schema.Module("pod").Child("coe").Child("", "pods")
			for _, uid := range o.acknowledged {
				require.NotNil(t, stored.Get(list, uid), "%s was acknowledged", uid)
				require.Equal(t, 200, o.do("GET", podsRFC+uid, "").status)
			}
		})
	}
}

func signalling(s syscall.Signal) func(*testing.T, *etcd.Member) {
	return func(t *testing.T, m *etcd.Member) { require.NoError(t, m.Signal(s)) }
}

// An etcd that is slow, and answers within the deadline, is waited for.
func TestDatastoreSlow(t *testing.T) {
	o, _ := newOutage(t, patience.Patience)
	for range 3 {
		require.NoError(t, o.member.Signal(syscall.SIGSTOP))
		time.AfterFunc(500*time.Millisecond, func() { assert.NoError(t, o.member.Signal(syscall.SIGCONT)) })
		require.Equal(t, 201, o.put().status)
	}
}
