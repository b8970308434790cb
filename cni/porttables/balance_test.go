package porttables_test

import (
	"net/netip"
	"testing"

	"github.com/coe-bridge/coe-bridge/cni/nodeports"
	"github.com/coe-bridge/coe-bridge/cni/porttables"
)

// TestBalances: if the pod network does not balance, all clients of cluster addresses and of node ports are led to endpoints: pods,
// clients outside, and programs of the node. The endpoints count without a bridge too.
func TestBalances(t *testing.T) {
	w := newWorld(t)
	w.table = porttables.New(porttables.Config{Netns: w.node, Link: "coe0", EgressLinks: "coe-*"})
	at := place
	at.Balances, at.IPv4.Node = true, netip.MustParseAddr(management)
	w.join(w.pods, "eth1", "100.97.0.1", w.node, "coe-web", "100.97.0.2")
	w.run(w.node, "sysctl -q -w net.ipv4.conf.all.rp_filter=2 net.ipv4.conf.coe-web.rp_filter=2")
	w.run(w.pods, "ip addr del "+service+"/32 dev lo; ip route add 10.96.0.0/16 via 100.97.0.2")
	to := direct("tcp", 80, pod1)
	to.Address = netip.MustParseAddr(service)
	node30080 := direct("tcp", 30080, pod1)
	w.syncAll(true, at, serving{Services: []nodeports.Port{to, node30080}})
	w.syncAll(false, at, serving{Services: []nodeports.Port{to, node30080}})

	w.answers(w.pods, "10.42.0.9", "tcp", service+":80", pod1+":8080 "+edge)
	w.answers(w.pods, pod1, "tcp", service+":80", pod1+":8080 "+edge)
	w.answers(w.node, "", "tcp", service+":80", pod1+":8080 "+management)
	w.answers(w.node, "", "tcp", node+":30080", pod1+":8080 "+management)
	w.answers(w.outside, client, "tcp", node+":30080", pod1+":8080 "+edge)

	local := direct("tcp", 30081, pod1)
	local.Local = true
	w.syncAll(true, at, serving{Services: []nodeports.Port{to, node30080, local}})
	w.answers(w.outside, other, "tcp", node+":30081", pod1+":8080 "+other)
	w.answers(w.outside, other, "tcp", node+":30080", pod1+":8080 "+edge)

	w.serveIn(w.outside, client+":8443")
	api := direct("tcp", 443, pod1)
	api.Address, api.Endpoints[0] = netip.MustParseAddr("10.96.0.1"), netip.MustParseAddrPort(client+":8443")
	w.syncAll(true, at, serving{Services: []nodeports.Port{to, node30080, api}})
	w.answers(w.node, management, "tcp", "10.96.0.1:443", client+":8443 "+node)

	to.Endpoints[0] = netip.MustParseAddrPort(pod2 + ":8080")
	w.syncAll(true, at, serving{Services: []nodeports.Port{to, node30080}})
	w.answers(w.pods, "10.42.0.9", "tcp", service+":80", pod2+":8080 "+edge)

	to.Local, to.Endpoints = true, nil
	w.syncAll(true, at, serving{Services: []nodeports.Port{to, node30080}})
	w.silent(w.pods, "10.42.0.9", service+":80")
}
