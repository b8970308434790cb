package hostile_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/coe-bridge/coe-bridge/cmd/bridge"
	"github.com/coe-bridge/coe-bridge/dhcppool"
	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// The two nodes: the first is honest, the second is captured.
var nodeAddresses = []string{"192.168.33.11", "192.168.33.12"}

// nodesBed is a bridge with two nodes, and the credentials of their agents.
type nodesBed struct {
	*bridgetest.Bridge
	t      *testing.T
	tokens []string
}

func newNodesBed(t *testing.T, options ...bridgetest.Option) *nodesBed {
	api := &apiServer{}
	b := &nodesBed{t: t, Bridge: bridgetest.Start(t, append(options, withTokens(api))...)}
	for i, address := range nodeAddresses {
		name, uid := fmt.Sprint("worker-", i), fmt.Sprintf("8f2a6d5e-0000-4000-8000-0000000000e%d", i)
		status, answer := b.Do("PUT", "/restconf/config/k8s-node:k8s-nodes-info/k8s-nodes/"+uid,
			fmt.Sprintf(`{"k8s-nodes":[{"uid":%q,"host-name":%q,"internal-ip-address":%q}]}`, uid, name, address))
		require.Equal(t, 201, status, answer)
		b.tokens = append(b.tokens, api.issue(name, name))
	}
	// When the bridge allows the agents to follow their streams, it knows the nodes.
	for i := range nodeAddresses {
		bridgetest.Await(t, 5*time.Millisecond, patience.Patience, "the bridge knows its nodes", func() error {
			if status := b.as(i, http.MethodHead, "/rests/streams/node-interfaces="+nodeAddresses[i], nil); status != http.StatusOK {
				return fmt.Errorf("HEAD of the stream: %d", status)
			}
			return nil
		})
	}
	return b
}

// as sends a request with the credentials of a node, and returns the status of the answer.
func (b *nodesBed) as(node int, method, path string, body io.Reader) int {
	b.t.Helper()
	answer, err := b.open(b.t.Context(), node, method, path, body)
	require.NoError(b.t, err)
	_, err = io.Copy(io.Discard, answer.Body)
	require.NoError(b.t, err)
	require.NoError(b.t, answer.Body.Close())
	return answer.StatusCode
}

func (b *nodesBed) open(ctx context.Context, node int, method, path string, body io.Reader) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, b.URL()+path, body)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+b.tokens[node])
	r.Header.Set("Content-Type", "application/yang-data+json")
	return http.DefaultClient.Do(r)
}

func uidOf(node, i int) string { return fmt.Sprintf("9f2a6d5e-0000-4000-8%03d-%012d", node, i) }

// pods returns a body with pods on a node.
func podsOn(node, from, to int) string {
	var all []string
	for i := from; i < to; i++ {
		all = append(all, fmt.Sprintf(`{"uid":%q,"name":"p-%d-%d","network-NS":"shop","host-ip-address":%q,"interface":[{"uid":%q}]}`,
			uidOf(node, i), node, i, nodeAddresses[node], uidOf(node, i)))
	}
	return `{"pod:pods":[` + strings.Join(all, ",") + `]}`
}

const podsContainer = "/rests/data/pod:coe"

// TestStreamsOfACapturedNode: one node opens many streams. The bridge serves only a few of them, and
// the agent of another node gets its stream at once.
func TestStreamsOfACapturedNode(t *testing.T) {
	b := newNodesBed(t)
	const many = 100
	ended := make(chan struct{}, many)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range many {
		answer, err := b.open(ctx, 1, http.MethodGet, "/rests/streams/node-interfaces="+nodeAddresses[1], nil) //nolint:bodyclose // the goroutine closes it
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, answer.StatusCode)
		go func() {
			_, _ = io.Copy(io.Discard, answer.Body)
			_ = answer.Body.Close()
			ended <- struct{}{}
		}()
	}
	for range many - 4 { // 4 is the number of streams that it may follow
		select {
		case <-ended:
		case <-time.After(patience.Patience):
			t.Fatal("the captured node can follow too many streams")
		}
	}
	begun := time.Now()
	answer, err := b.open(ctx, 0, http.MethodGet, "/rests/streams/node-interfaces="+nodeAddresses[0], nil)
	require.NoError(t, err)
	defer func() { _ = answer.Body.Close() }()
	require.Equal(t, http.StatusOK, answer.StatusCode)
	_, err = bufio.NewReader(answer.Body).ReadString('\n')
	require.NoError(t, err)
	t.Logf("the other agent has its stream after %s", time.Since(begun))
	_, metrics := b.Do("GET", "/metrics", "")
	require.Contains(t, metrics, fmt.Sprintf("coe_bridge_limited_total{limit=\"streams\"} %d", many-4))
}

// TestAddressesOfACapturedNode: one node creates as many pods as its limit allows, in one request and
// in several. It deletes them and creates them again. The pool still has addresses for another node.
func TestAddressesOfACapturedNode(t *testing.T) {
	const most = 50
	b := newNodesBed(t, func(c *bridge.Config) {
		c.HTTP.AgentInterfaces = most
		c.Pools = []dhcppool.Pool{{Network: "default", Subnet: netip.MustParsePrefix("10.11.0.0/24")}}
		c.ReuseDelay = time.Hour
	})
	require.Equal(t, http.StatusForbidden, b.as(1, "POST", podsContainer, strings.NewReader(podsOn(1, 0, 260))))
	made := 0
	for i := range 3 * most {
		if b.as(1, "POST", podsContainer, strings.NewReader(podsOn(1, i, i+1))) == http.StatusCreated {
			made++
		}
	}
	require.Equal(t, most, made)
	leased := func() (n int) {
		var leases struct {
			Lease []struct{} `json:"lease"`
		}
		b.Get("operational/coe-status:leases", &leases)
		return len(leases.Lease)
	}
	await := func(n int) {
		t.Helper()
		bridgetest.Await(t, 5*time.Millisecond, patience.Patience, "leases", func() error {
			if got := leased(); got != n {
				return fmt.Errorf("%d leases, want %d", got, n)
			}
			return nil
		})
	}
	await(most)
	for i := range most { // deleted and created again: their addresses rest
		require.Equal(t, http.StatusNoContent, b.as(1, "DELETE", podsContainer+"/pods="+uidOf(1, i), nil))
	}
	b.AwaitSync(patience.Patience)
	made = 0
	for i := 200; i < 200+3*most; i++ {
		if b.as(1, "POST", podsContainer, strings.NewReader(podsOn(1, i, i+1))) == http.StatusCreated {
			made++
		}
	}
	require.LessOrEqual(t, made, most)
	_, metrics := b.Do("GET", "/metrics", "")
	require.NotContains(t, metrics, `coe_bridge_limited_total{limit="pods"} 0`)

	require.Equal(t, http.StatusCreated, b.as(0, "POST", podsContainer, strings.NewReader(podsOn(0, 0, 1))))
	bridgetest.Await(t, 5*time.Millisecond, patience.Patience, "the other node's pod has an address", func() error {
		if _, leases := b.Do("GET", "/restconf/operational/coe-status:leases", ""); !strings.Contains(leases, uidOf(0, 0)) {
			return fmt.Errorf("no lease: %+v", b.Status().Problems)
		}
		return nil
	})
}

// TestPodThatMovesToOtherAddresses: one pod is created and deleted repeatedly, each time with another
// address. Its former addresses count for its node.
func TestPodThatMovesToOtherAddresses(t *testing.T) {
	const most = 20
	b := newNodesBed(t, func(c *bridge.Config) {
		c.HTTP.AgentInterfaces = most
		c.Pools = []dhcppool.Pool{{Network: "default", Subnet: netip.MustParsePrefix("10.11.0.0/24")}}
		c.ReuseDelay = time.Hour
	})
	uid, made := uidOf(1, 0), 0
	for i := 2; i < 4*most; i++ {
		body := fmt.Sprintf(`{"pod:pods":[{"uid":%q,"name":"p","host-ip-address":%q,"interface":[{"uid":%q,"ip-address":"10.11.0.%d"}]}]}`,
			uid, nodeAddresses[1], uid, i)
		if b.as(1, "POST", podsContainer, strings.NewReader(body)) != http.StatusCreated {
			break
		}
		made++
		b.AwaitSync(patience.Patience)
		require.Equal(t, http.StatusNoContent, b.as(1, "DELETE", podsContainer+"/pods="+uid, nil))
		b.AwaitSync(patience.Patience)
	}
	require.LessOrEqual(t, made, 2*most+2) // some addresses are gateways, which no pod gets
}

// TestBytesOfACapturedNode: a node cannot store long texts, long lists or large bodies. A writer
// cannot store long texts either.
func TestBytesOfACapturedNode(t *testing.T) {
	b := newNodesBed(t)
	one := podsOn(1, 0, 1)
	with := func(leaf string, n int) string {
		return strings.Replace(one, `"network-NS"`, fmt.Sprintf(`%q:%q,"network-NS"`, leaf, strings.Repeat("x", n)), 1)
	}
	var interfaces []string
	for i := range 100 {
		interfaces = append(interfaces, fmt.Sprintf(`{"uid":%q}`, uidOf(9, i)))
	}
	for _, c := range []struct {
		what, body string
		status     int
	}{
		{"a body of 7 MB", with("version", 7<<20), http.StatusRequestEntityTooLarge},
		{"a text of 60 KB", with("version", 60<<10), http.StatusRequestEntityTooLarge},
		{"a long namespace", strings.Replace(one, "shop", strings.Repeat("s", 64), 1), http.StatusBadRequest},
		{"a zone in an address", strings.Replace(one, `"interface":[{`, `"interface":[{"ip-address":"10.11.0.9%`+strings.Repeat("z", 1000)+`",`, 1), http.StatusBadRequest},
		{"a hundred interfaces", strings.Replace(one, `"interface":[`, `"interface":[`+strings.Join(interfaces, ",")+`,`, 1), http.StatusBadRequest},
		{"as much as it may have", with("version", 253), http.StatusCreated},
	} {
		require.Equal(t, c.status, b.as(1, "POST", podsContainer, strings.NewReader(c.body)), c.what)
	}
	status, answer := b.Do("POST", "/restconf/config/pod:coe", strings.NewReplacer("pod:pods", "pods", uidOf(1, 0), uidOf(0, 0)).Replace(with("version", 254)))
	require.Equal(t, http.StatusRequestEntityTooLarge, status, answer)
	require.Contains(t, answer, "version")
	require.Contains(t, answer, "want 253 at most")
}

// TestSlowBodiesOfACapturedNode: one node sends requests whose bodies do not end. The agents of other
// nodes do not wait for them.
func TestSlowBodiesOfACapturedNode(t *testing.T) {
	b := newNodesBed(t)
	for range 300 {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(b.URL(), "http://"))
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/yang-data+json\r\nContent-Length: 60000\r\n\r\n{", podsContainer, b.tokens[1])
		require.NoError(t, err)
	}
	bridgetest.Await(t, 5*time.Millisecond, patience.Patience, "the bridge refuses some", func() error {
		if _, metrics := b.Do("GET", "/metrics", ""); !strings.Contains(metrics, `coe_bridge_limited_total{limit="requests"}`) ||
			strings.Contains(metrics, `coe_bridge_limited_total{limit="requests"} 0`) {
			return fmt.Errorf("the bridge accepts all")
		}
		return nil
	})
	begun := time.Now()
	require.Equal(t, http.StatusCreated, b.as(0, "POST", podsContainer, strings.NewReader(podsOn(0, 0, 1))))
	t.Logf("the other agent's pod is made after %s", time.Since(begun))
}

// TestAgentsMakeNoPodsBesideKubernetes: if the bridge watches Kubernetes, agents cannot create pods.
// So an agent cannot claim the name of a pod before Kubernetes creates it.
func TestAgentsMakeNoPodsBesideKubernetes(t *testing.T) {
	b := newNodesBed(t, func(c *bridge.Config) {
		c.Kubernetes.API = &rest.Config{Host: "127.0.0.1:1"} // unreachable
	})
	answer, err := b.open(t.Context(), 1, "POST", podsContainer, strings.NewReader(podsOn(1, 0, 1)))
	require.NoError(t, err)
	says, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusForbidden, answer.StatusCode)
	require.Contains(t, string(says), "Kubernetes creates them")
}

// The agent of a captured node requests addresses outside the pools of its pods. A client with the role
// writer gets such an address; the agent does not.
func TestAddressesThatAnAgentRequests(t *testing.T) {
	b := newNodesBed(t, func(c *bridge.Config) {
		c.Pools = []dhcppool.Pool{
			{Network: "default", Subnet: netip.MustParsePrefix("10.11.0.0/24")},
			{Network: nodeAddresses[0], Subnet: netip.MustParsePrefix("10.12.0.0/24")},
			{Network: "shop", Subnet: netip.MustParsePrefix("10.13.0.0/24")},
		}
	})
	for n, c := range []struct {
		namespace, address string
		status             int
	}{
		{"default", "8.8.8.8", http.StatusForbidden},
		{"default", "10.12.0.9", http.StatusForbidden}, // in the pool of the other node
		{"default", nodeAddresses[0], http.StatusForbidden},
		{"default", "2001:db8::1", http.StatusForbidden},
		{"default", "10.11.0.9", http.StatusCreated},
		{"shop", "10.11.0.10", http.StatusForbidden}, // the namespace has its own pool
		{"shop", "10.13.0.9", http.StatusCreated},
	} {
		uid := uidOf(8, n)
		body := fmt.Sprintf(`{"pod:pods":[{"uid":%q,"name":"p%d","network-NS":%q,"host-ip-address":%q,"interface":[{"uid":%q,"ip-address":%q}]}]}`,
			uid, n, c.namespace, nodeAddresses[1], uid, c.address)
		require.Equal(t, c.status, b.as(1, "POST", podsContainer, strings.NewReader(body)), c.address)
		if c.status == http.StatusCreated {
			require.Equal(t, http.StatusNoContent, b.as(1, "DELETE", podsContainer+"/pods="+uid, nil))
		}
	}
}
