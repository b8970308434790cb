package replicas

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/ovsdb"
)

// object is a JSON object.
type object map[string]any

// nodes has the addresses of the nodes of a load's pods.
var nodes = []string{"192.168.33.11", "192.168.33.12", "192.168.33.13"}

// putPool writes one pool for all namespaces.
func putPool(r *replica, subnet string) {
	r.t.Helper()
	pool := object{"subnet": subnet}
	r.change(http.MethodPut, "dhcp_allocation_pool:dhcp_allocation_pool/network/default", object{
		"network": []object{{"network-id": "default", "allocation-pool": []object{pool}}},
	})
}

func podUID(n int) string  { return fmt.Sprintf("4e91c000-c0e0-4000-8000-%012d", n) }
func podPath(n int) string { return "pod:coe/pods/" + podUID(n) }

// namespaces are the namespaces of a load's pods. The last name is longer than the longest vpn-name.
var namespaces = []string{"ns-0", "ns-1", "ns-with-a-name-that-has-more-than-forty-characters"}

// podName returns the name of a pod, and of its port.
func podName(n int) string { return fmt.Sprintf("%s:pod-%d", namespaces[n%len(namespaces)], n) }

func podBody(n int) object {
	namespace, name, _ := strings.Cut(podName(n), ":")
	return object{"pods": []object{{
		"uid": podUID(n), "name": name, "network-NS": namespace, "host-ip-address": nodes[n%len(nodes)],
		"interface": []object{{"uid": podUID(n), "network-type": "VXLAN"}},
	}}}
}

// load puts pods and deletes some of them. It records the acknowledged state of each pod.
type load struct {
	through *replica
	random  *rand.Rand
	every   time.Duration

	mu      sync.Mutex
	first   int // the number of its first pod
	next    int // the number of its next pod
	there   map[int]bool
	unsure  map[int]bool // the last request about the pod got no answer
	refused []string
}

// newLoad returns a load whose pods have numbers from first on.
func newLoad(through *replica, seed uint64, first int, every time.Duration) *load {
	return &load{
		through: through, random: rand.New(rand.NewPCG(seed, uint64(first))), every: every, first: first,
		there: map[int]bool{}, unsure: map[int]bool{},
	}
}

// start makes requests until stop is called. stop returns when the last request is answered.
func (l *load) start(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(l.every)
		defer tick.Stop()
		for ctx.Err() == nil {
			l.step(t.Context())
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	}()
	return func() { cancel(); <-done }
}

func (l *load) step(ctx context.Context) {
	l.mu.Lock()
	n, put := l.first+l.next, true
	if old := l.first + l.random.IntN(l.next+1); l.there[old] && l.random.IntN(4) == 0 {
		n, put = old, false
	} else {
		l.next++
	}
	l.mu.Unlock()
	method, body := http.MethodPut, any(podBody(n))
	if !put {
		method, body = http.MethodDelete, nil
	}
	status, answer, err := l.through.do(ctx, method, "/restconf/config/"+podPath(n), body)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err != nil || status == http.StatusServiceUnavailable:
		l.unsure[n] = true
	case status/100 != 2:
		l.refused = append(l.refused, fmt.Sprintf("%s %s: %d %s", method, podPath(n), status, answer))
	default:
		l.there[n] = put
	}
}

// number returns the number of the next pod.
func (l *load) number() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.first + l.next
}

// requireAcknowledged requires that exactly the acknowledged pods exist, and returns their numbers, by
// UID. It also settles the state of pods whose last request got no answer.
func requireAcknowledged(t *testing.T, r *replica, loads ...*load) map[string]int {
	t.Helper()
	var top struct {
		Pods []struct {
			UID string `json:"uid"`
		} `json:"pods"`
	}
	require.NoError(t, r.read("config/pod:coe", &top))
	got := map[string]bool{}
	for _, p := range top.Pods {
		got[p.UID] = true
	}
	want := map[string]int{}
	for _, l := range loads {
		require.Empty(t, l.refused)
		for n := range l.unsure {
			l.there[n] = got[podUID(n)]
		}
		clear(l.unsure)
		for n, there := range l.there {
			if there {
				want[podUID(n)] = n
			}
		}
	}
	require.Len(t, got, len(want))
	for uid := range want {
		require.Contains(t, got, uid)
	}
	return want
}

// lease is an entry of coe-status:leases.
type lease struct {
	PodUID    string       `json:"pod-uid"`
	Name      string       `json:"interface-name"`
	MAC       string       `json:"mac-address"`
	Addresses []netip.Addr `json:"ip-address"`
	Released  string       `json:"released"`
}

func (r *replica) leases() []lease {
	r.t.Helper()
	var top struct {
		Leases []lease `json:"lease"`
	}
	require.NoError(r.t, r.read("operational/coe-status:leases", &top))
	return top.Leases
}

// requireExact requires that the northbound database has exactly the rows that follow from the pods and
// the leases.
func requireExact(t *testing.T, r *replica, nb *ovsdb.Server, pods map[string]int) {
	t.Helper()
	var want []string
	for _, l := range r.leases() {
		n, there := pods[l.PodUID]
		if l.Released != "" {
			require.False(t, there, "the lease of pod %d is released", n)
			continue
		}
		require.True(t, there, "%s has a lease and is deleted", l.Name)
		require.Equal(t, podName(n), l.Name)
		require.Len(t, l.Addresses, 1)
		want = append(want, fmt.Sprintf("%s,%s %s", l.Name, l.MAC, l.Addresses[0]))
	}
	if len(want) != len(pods) {
		st, err := r.status()
		require.NoError(t, err)
		require.Equal(t, len(pods), len(want), "leases; status: %.2000v", fmt.Sprint(st))
	}
	got := ports(t, nb, "name,addresses")
	require.Empty(t, without(want, got), "ports that are missing")
	require.Empty(t, without(got, want), "ports that should not be there")
}

// without returns the elements of a that b does not have.
func without(a, b []string) []string {
	have := map[string]bool{}
	for _, x := range b {
		have[x] = true
	}
	return slices.DeleteFunc(slices.Clone(a), func(x string) bool { return have[x] })
}

// ports returns a column of the ports of pods.
func ports(t *testing.T, nb *ovsdb.Server, columns string) []string {
	t.Helper()
	out := nb.NBCtl(t, "--format=csv", "--data=bare", "--no-headings", "--columns="+columns, "find", "Logical_Switch_Port", `type=""`)
	return slices.DeleteFunc(strings.Split(strings.TrimSpace(out), "\n"), func(line string) bool {
		return line == "" || strings.HasPrefix(line, "node:") // the port of a node
	})
}
