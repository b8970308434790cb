package northbound_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/northbound"
	"github.com/coe-bridge/coe-bridge/coe/state"
	"github.com/coe-bridge/coe-bridge/dhcppool"
)

func TestPod(t *testing.T) {
	p, err := northbound.Pod([]byte(`{"uid":"ac092d9b-e9eb-bae2-eed8-74aca2b7fa9c","version":"Some version","name":"web",
		"host-ip-address":"192.168.33.12","port-mac-address":"0A:58:00:00:00:01",
		"interface":[{"uid":"7ba91a3a-f17e-2ebb-edec-3bbbea27dca7","ip-address":"0.147.0.7","network-type":"FLAT","segmentation-id":3}]}`))
	require.NoError(t, err)
	require.Equal(t, &coe.Pod{
		UID: "ac092d9b-e9eb-bae2-eed8-74aca2b7fa9c", Name: "web", Namespace: "default",
		HostIP: netip.MustParseAddr("192.168.33.12"), MAC: "0a:58:00:00:00:01", DHCP: true,
		Interfaces: []coe.PodInterface{{
			UID: "7ba91a3a-f17e-2ebb-edec-3bbbea27dca7", Addresses: []netip.Addr{netip.MustParseAddr("0.147.0.7")},
			NetworkType: "FLAT", SegmentationID: 3,
		}},
	}, p)
}

// A network-id has no effect, except the one that names no network.
func TestNetworkID(t *testing.T) {
	for id, want := range map[string]coe.Ignored{
		"fbad80df-b0b4-0580-8d14-11fcaced2ac6": coe.NetworkID,
		"00000000-0000-0000-0000-000000000000": 0,
	} {
		p, err := northbound.Pod([]byte(`{"uid":"u","interface":[{"uid":"i","network-id":"` + id + `"}]}`))
		require.NoError(t, err)
		require.Equal(t, want, p.Ignored, id)
	}
}

func TestPolicies(t *testing.T) {
	p, err := northbound.AccessList([]byte(`{"acl-type":"ietf-access-control-list:ipv4-acl","acl-name":"deny all"}`))
	require.NoError(t, err)
	require.Equal(t, coe.Policy{UID: "ietf-access-control-list:ipv4-acl deny all", Name: "deny all", Kind: coe.AccessList}, p.Policy)
}

func TestService(t *testing.T) {
	s, err := northbound.Service([]byte(`{"uid":"u","name":"web","network-NS":"shop","cluster-ip-address":"10.96.0.9",
		"external-ip-address":["203.0.113.1"],"load-balancer-IP":"203.0.113.2","ingress-ip-address":["203.0.113.3"],
		"service-ports":[{"name":"http","port":80,"target-port":"8080","node-port":30080}],"endpoints":["e1"]}`))
	require.NoError(t, err)
	require.Equal(t, &coe.Service{
		UID: "u", Name: "web", Namespace: "shop", ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.9")},
		ExternalIPs: []netip.Addr{
			netip.MustParseAddr("203.0.113.1"), netip.MustParseAddr("203.0.113.2"), netip.MustParseAddr("203.0.113.3"),
		},
		Ports:        []coe.ServicePort{{Name: "http", Protocol: "tcp", Port: 80, TargetPort: "8080", NodePort: 30080}},
		PodEndpoints: []string{"e1"},
	}, s)
}

func TestEndpoints(t *testing.T) {
	e, err := northbound.Endpoints([]byte(`{"uid":"u","name":"web","endpoint-addresses":[{"ip-address":"10.0.0.1","host-name":"h"},{"node-name":"n"}],
		"endpoint-ports":[{"name":"http","port":8080}]}`))
	require.NoError(t, err)
	require.Equal(t, &coe.Endpoints{
		UID: "u", Name: "web", Namespace: "default", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1")},
		Ports: []coe.EndpointPort{{Name: "http", Protocol: "tcp", Port: 8080}},
	}, e)
}

func TestNode(t *testing.T) {
	n, err := northbound.Node([]byte(`{"uid":"u","host-name":"node1","external-ip-address":"203.0.113.9","pod-cidr":"10.11.2.7/24"}`))
	require.NoError(t, err)
	require.Equal(t, netip.MustParseAddr("203.0.113.9"), n.Address(), "the internal address is missing")
	require.Equal(t, []netip.Prefix{netip.MustParsePrefix("10.11.2.0/24")}, n.PodCIDRs)
}

func TestPools(t *testing.T) {
	pools, err := northbound.Pools([]byte(`{"network-id":"pod-namespace","allocation-pool":[{"subnet":"192.168.10.0/24",
		"allocate-from":"192.168.10.3","allocate-to":"192.168.10.50","gateway":"192.168.10.2","dns-servers":["8.8.8.8"],"coe-dhcp:dhcp":true}]}`))
	require.NoError(t, err)
	require.Equal(t, []dhcppool.Pool{{
		DHCP:    true,
		Network: "pod-namespace", Subnet: netip.MustParsePrefix("192.168.10.0/24"),
		From: netip.MustParseAddr("192.168.10.3"), To: netip.MustParseAddr("192.168.10.50"),
		Gateway: netip.MustParseAddr("192.168.10.2"), DNS: []netip.Addr{netip.MustParseAddr("8.8.8.8")},
	}}, pools)
}

// leaves implements Leaves for a JSON object.
type leaves map[string]any

func (l leaves) Leaf(name string) string {
	if v, found := l[name]; found {
		return fmt.Sprint(v)
	}
	return ""
}

func (l leaves) Each(list string) iter.Seq[northbound.Leaves] {
	return func(yield func(northbound.Leaves) bool) {
		entries, _ := l[list].([]any)
		for _, e := range entries {
			if !yield(leaves(e.(map[string]any))) {
				return
			}
		}
	}
}

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		list, raw, leaf string
	}{
		{northbound.Pods, `{"name":"a:b"}`, "name"},
		{northbound.Pods, `{"network-NS":"a:b"}`, "network-NS"},
		{northbound.Pods, `{"name":"` + strings.Repeat("a", 254) + `"}`, "name"},
		{northbound.Pods, `{"network-NS":"(cluster)"}`, "network-NS"},
		{northbound.Pods, `{"port-mac-address":"zz"}`, "port-mac-address"},
		{northbound.Pods, `{"port-mac-address":"01:00:5e:00:00:01"}`, "port-mac-address"},
		{northbound.Pods, `{"port-mac-address":"","name":"a"}`, ""},
		{northbound.Services, `{"service-ports":[{"port":0}]}`, "service-ports/port"},
		{northbound.Services, `{"service-ports":[{"port":65536}]}`, "service-ports/port"},
		{northbound.Services, `{"service-ports":[{"port":80,"node-port":-1}]}`, "service-ports/node-port"},
		{northbound.Services, `{"network-NS":"a:b"}`, "network-NS"},
		{northbound.Services, `{"cluster-ip-address":"5.21.5.0"}`, ""},
		{northbound.EndpointsList, `{"endpoint-ports":[{"port":-1}]}`, "endpoint-ports/port"},
		{northbound.EndpointsList, `{"network-NS":"a:b"}`, "network-NS"},
		{northbound.EndpointsList, `{}`, ""},
		{northbound.Nodes, `{"pod-cidr":"10.0.0.0"}`, "pod-cidr"},
		{northbound.Nodes, `{"pod-cidr":"10.0.0.0/24"}`, ""},
		{"k8s:k8s/other", `{"name":"a:b"}`, ""},
	} {
		var entry leaves
		require.NoError(t, json.Unmarshal([]byte(c.raw), &entry))
		err := northbound.Check(c.list, entry)
		var leaf *northbound.LeafError
		if c.leaf == "" {
			require.NoError(t, err, c.raw)
			continue
		}
		require.True(t, errors.As(err, &leaf), c.raw)
		require.Equal(t, c.leaf, leaf.Leaf)
	}
}

func TestFeed(t *testing.T) {
	store := state.NewStore(nil, coe.RESTCONF)
	var pools []dhcppool.Pool
	feed := northbound.NewFeed(store, func(all []dhcppool.Pool) { pools = all }, slog.New(slog.DiscardHandler))
	pod := func(uid string) northbound.Entry {
		return northbound.Entry{List: northbound.Pods, Key: uid, Raw: []byte(`{"uid":"` + uid + `","name":"p"}`)}
	}
	network := northbound.Entry{List: northbound.Networks, Key: "default", Raw: []byte(`{"network-id":"default","allocation-pool":[{"subnet":"10.0.0.0/24"}]}`)}

	feed.Apply(northbound.Batch{Revision: 3, Snapshot: true, Entries: []northbound.Entry{pod("u1"), pod("u2"), network}})
	require.True(t, store.Complete())
	require.Equal(t, int64(3), store.Revision())
	require.Len(t, store.View("default").Pods, 2)
	require.Len(t, pools, 1)

	damaged := northbound.Entry{List: northbound.Networks, Key: "default", Raw: []byte(`{`)}
	other := northbound.Entry{List: northbound.Networks, Key: "other", Raw: []byte(`{"network-id":"other"}`)}
	feed.Apply(northbound.Batch{Revision: 3, Entries: []northbound.Entry{damaged, other}})
	require.Len(t, pools, 1, "an unreadable entry changes nothing")

	feed.Apply(northbound.Batch{Revision: 4, Entries: []northbound.Entry{{List: northbound.Pods, Key: "u1"}, {List: northbound.Networks, Key: "default"}}})
	require.Len(t, store.View("default").Pods, 1)
	require.Empty(t, pools)

	feed.Apply(northbound.Batch{Revision: 9, Snapshot: true, Entries: []northbound.Entry{pod("u3")}})
	require.Equal(t, "u3", store.View("default").Pods[0].UID, "entries missing from a snapshot are deleted")
	require.Len(t, store.View("default").Pods, 1)

	feed.Apply(northbound.Batch{Revision: 10, Entries: []northbound.Entry{{List: northbound.Pods, Key: "u3", Raw: []byte(`{`)}}})
	require.Len(t, store.View("default").Pods, 1, "an unreadable entry changes nothing")
}

// TestEntriesThatCannotBeRead: each unreadable entry is a problem until it is written again or
// deleted. Its former value stays.
func TestEntriesThatCannotBeRead(t *testing.T) {
	store := state.NewStore(nil, coe.RESTCONF)
	feed := northbound.NewFeed(store, func([]dhcppool.Pool) {}, slog.New(slog.DiscardHandler))
	pod := []byte(`{"uid":"a","name":"web"}`)
	feed.Apply(northbound.Batch{Revision: 1, Snapshot: true, Entries: []northbound.Entry{
		{List: northbound.Pods, Key: "a", Raw: pod},
		{List: northbound.Pods, Key: "b", Raw: pod},
		{List: northbound.Nodes, Key: "n", Raw: []byte(`{"uid":"n","internal-ip-address":7}`)},
		{List: northbound.Networks, Key: "default", Raw: []byte(`{"network-id":"default"}`), Damaged: true},
	}})
	problems := func() (all []string) {
		for _, p := range store.Cluster().Damaged {
			require.Equal(t, coe.RecordDamaged, p.Reason)
			all = append(all, p.UID)
		}
		return all
	}
	require.Equal(t, []string{"dhcp_allocation_pool:dhcp_allocation_pool/network=default", "k8s-node:k8s-nodes-info/k8s-nodes=n", "pod:coe/pods=b"}, problems())
	require.True(t, store.Complete())
	require.Len(t, store.View("default").Pods, 1)

	feed.Apply(northbound.Batch{Revision: 2, Entries: []northbound.Entry{
		{List: northbound.Pods, Key: "a", Raw: []byte("{}"), Damaged: true},
		{List: northbound.Pods, Key: "b"},
		{List: northbound.Nodes, Key: "n", Raw: []byte(`{"uid":"n"}`)},
	}})
	require.Equal(t, []string{"dhcp_allocation_pool:dhcp_allocation_pool/network=default", "pod:coe/pods=a"}, problems())
	require.Equal(t, "web", store.View("default").Pods[0].Name)
	feed.Apply(northbound.Batch{Revision: 3, Snapshot: true, Entries: []northbound.Entry{{List: northbound.Pods, Key: "a", Raw: pod}}})
	require.Empty(t, problems())
}
