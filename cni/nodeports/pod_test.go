package nodeports_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cni/nodeports"
)

// withPod makes the namespace outside that of a pod, which reaches cluster addresses by the node.
func (w *world) withPod() nodeports.Place {
	w.Helper()
	w.run(w.outside, "ip route add 10.0.0.0/8 via "+node)
	w.table = nodeports.New(nodeports.Config{Netns: w.outside, OfPod: true})
	at := place
	at.IPv4 = nodeports.Addresses{Edge: place.IPv4.Internal}
	return at
}

// TestPod: programs of a pod are led to endpoints, which see the address of the pod. All other packets go on as they are. The
// table follows its ports, and is gone without any.
func TestPod(t *testing.T) { eachFamily(t, testPod) }

func testPod(w *world) {
	t := w.T
	at := w.withPod()
	w.answers(w.outside, client, "tcp", service+":80", service+":80 "+client)
	for range 2 {
		w.syncAll(true, at, serving{Services: []nodeports.Port{own(service, direct("tcp", 80, pod1)), own(service, direct("udp", 80, pod1))}})
		w.syncAll(false, at, serving{Services: []nodeports.Port{own(service, direct("tcp", 80, pod1)), own(service, direct("udp", 80, pod1))}})
		w.answers(w.outside, client, "tcp", service+":80", pod1+":8080 "+client)
		w.answers(w.outside, client, "tcp", pod2+":8080", pod2+":8080 "+client)
		going, err := w.dial(w.outside, client, "udp", service+":80")
		require.NoError(t, err)
		for _, to := range []string{pod1, pod2} {
			w.syncAll(to != pod1, at, serving{Services: []nodeports.Port{own(service, direct("tcp", 80, to)), own(service, direct("udp", 80, to))}})
			got, err := answer(going, patience)
			require.NoError(t, err)
			require.Equal(t, w.text(to+":8080 "+client), got)
		}
		w.syncAll(true, at, serving{Services: []nodeports.Port{own(service, direct("tcp", 80, pod2))}})
		got, err := answer(going, patience)
		require.NoError(t, err)
		require.Equal(t, w.text(service+":80 "+client), got, "the node leads what the pod does not")
		require.NoError(t, going.Close())

		w.syncAll(true, at, serving{})
		w.syncAll(false, at, serving{})
		w.answers(w.outside, client, "tcp", service+":80", service+":80 "+client)
		require.Empty(t, w.run(w.outside, "nft list ruleset"))
	}
}

// TestPodWithAffinity: a pod keeps its endpoint.
func TestPodWithAffinity(t *testing.T) { eachFamily(t, testPodWithAffinity) }

func testPodWithAffinity(w *world) {
	port := own(service, direct("tcp", 80, pod1, pod2))
	port.Affinity = time.Hour
	w.syncAll(true, w.withPod(), serving{Services: []nodeports.Port{port}})
	first, err := w.ask(w.outside, client, "tcp", service+":80")
	require.NoError(w.T, err)
	for range 20 {
		w.answers(w.outside, client, "tcp", service+":80", first)
	}
}

// TestPodWithProxy: a proxy in the pod that takes its connections over gets those to services too.
func TestPodWithProxy(t *testing.T) { eachFamily(t, testPodWithProxy) }

func testPodWithProxy(w *world) {
	w.syncAll(true, w.withPod(), serving{Services: []nodeports.Port{own(service, direct("tcp", 80, pod1))}})
	w.serveIn(w.outside, "127.0.0.1:15001")
	w.run(w.outside, "nft add table ip proxy; nft add chain ip proxy out '{ type nat hook output priority -100; }'; "+
		"nft add rule ip proxy out tcp dport 80 redirect to :15001")
	w.answers(w.outside, client, "tcp", service+":80", "127.0.0.1:15001 "+client)
}

// TestChangedByPod: a table that programs of the pod have changed is created again when others have changed nftables, whatever is in it.
func TestChangedByPod(t *testing.T) { eachFamily(t, testChangedByPod) }

func testChangedByPod(w *world) {
	t := w.T
	at := w.withPod()
	ports := serving{Services: []nodeports.Port{own(service, direct("tcp", 80, pod1))}}
	w.syncAll(true, at, ports)
	before := w.run(w.outside, "nft -s list ruleset")
	for _, change := range []string{
		"nft delete table ip " + nodeports.TableName,
		"nft flush chain ip " + nodeports.TableName + " own",
		"nft delete table ip " + nodeports.TableName + "; nft add table ip " + nodeports.TableName + "; nft add set ip " + nodeports.TableName + " services '{ type inet_service; }'",
	} {
		w.run(w.outside, change)
		w.answers(w.outside, client, "tcp", service+":80", service+":80 "+client)
		w.syncAll(true, at, ports)
		w.answers(w.outside, client, "tcp", service+":80", pod1+":8080 "+client)
		require.Equal(t, before, w.run(w.outside, "nft -s list ruleset"), change)
	}
	w.run(w.outside, "nft add table ip others")
	w.syncAll(true, at, serving{})
	require.NotContains(t, w.run(w.outside, "nft list ruleset"), nodeports.TableName)
}
