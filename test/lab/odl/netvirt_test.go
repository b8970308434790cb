package odl_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/odl"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// object is an object of Netvirt, as JSON.
type object map[string]any

// put writes an entry of a list, without the other entries.
func put(t *testing.T, c *odl.Controller, container, list, key string, entry object) {
	t.Helper()
	body, err := json.Marshal(object{list: []object{entry}})
	require.NoError(t, err)
	path := fmt.Sprintf("/restconf/config/%s/%s/%s", container, list, url.QueryEscape(key))
	status, answer, err := c.Request(t.Context(), http.MethodPut, path, string(body))
	require.NoError(t, err)
	require.Less(t, status, 300, "%s: %s", path, answer)
}

// putVPN writes a vpn-instance with its route distinguisher. It imports and exports the route distinguisher
// and further values as route targets.
func putVPN(t *testing.T, c *odl.Controller, name, rd string, targets ...string) {
	t.Helper()
	list := []object{{"vrfRTValue": rd, "vrfRTType": "both"}}
	for _, target := range targets {
		list = append(list, object{"vrfRTValue": target, "vrfRTType": "both"})
	}
	put(t, c, "l3vpn:vpn-instances", "vpn-instance", name, object{
		"vpn-instance-name": name, "type": "l3",
		"ipv4-family": object{"route-distinguisher": []string{rd}, "vpnTargets": object{"vpnTarget": list}},
	})
}

// pod is a pod of a namespace on a host. Each namespace has its own network there.
type pod struct {
	namespace string
	network   int // the third octet of its address
	number    int // the last octet
	host      *ovnhost.Host
}

func (p pod) name() string { return fmt.Sprintf("%s:p%d-%d", p.namespace, p.network, p.number) }
func (p pod) elan() string { return fmt.Sprintf("%s:%s", p.host.Address, p.namespace) }

// port returns the name of the pod's port in the form that the controller needs. It identifies ports with
// other names only by switch and name.
func (p pod) port() string { return fmt.Sprintf("tap0000%04x-%02x", p.network, p.number) }

func (p pod) address() netip.Addr {
	return netip.AddrFrom4([4]byte{10, 11, byte(p.network), byte(p.number)})
}

func (p pod) gateway() netip.Addr { return netip.AddrFrom4([4]byte{10, 11, byte(p.network), 1}) }

func (p pod) mac() net.HardwareAddr {
	return append(net.HardwareAddr{0x0a, 0x58}, p.address().AsSlice()...)
}

// subnet returns the ID of the pod's network.
func (p pod) subnet() string { return fmt.Sprintf("b498b7ae-4cbd-3563-b75d-7eaf4445%04d", p.network) }

// putELAN writes the elan of a pod's namespace on its host. It must be called once: an elan that is written
// again gets another tag, and its pods do not reach each other any more.
func putELAN(t *testing.T, c *odl.Controller, p pod) {
	t.Helper()
	put(t, c, "elan:elan-instances", "elan-instance", p.elan(), object{
		"elan-instance-name": p.elan(), "segment-type": "elan:segment-type-vxlan", "segmentation-id": 70000 + p.network, "external": false,
	})
}

// putPod writes a pod's objects, as a member of a vpn.
func putPod(t *testing.T, c *odl.Controller, p pod, vpn string) {
	t.Helper()
	put(t, c, "ietf-interfaces:interfaces", "interface", p.name(), object{
		"name": p.name(), "type": "iana-if-type:l2vlan", "enabled": true, "odl-interface:l2vlan-mode": "trunk", "odl-interface:parent-interface": p.port(),
	})
	put(t, c, "elan:elan-interfaces", "elan-interface", p.name(), object{
		"name": p.name(), "elan-instance-name": p.elan(),
		"static-mac-entries": []object{{"mac-address": p.mac().String(), "ip-prefix": p.address()}},
	})
	putVPNInterface(t, c, p, vpn)
}

func plug(t *testing.T, c *odl.Controller, p pod) {
	t.Helper()
	require.NoError(t, c.Lab.Plug(t.Context(), ovnhost.Pod{
		Host: p.host.Name, Name: p.name(), UID: p.name(), PortName: p.port(), MAC: p.mac(),
		Address: netip.PrefixFrom(p.address(), 24), Gateway: p.gateway(),
	}))
}

func putVPNInterface(t *testing.T, c *odl.Controller, p pod, vpn string) {
	t.Helper()
	put(t, c, "l3vpn:vpn-interfaces", "vpn-interface", p.name(), object{
		"name": p.name(), "router-interface": false,
		"vpn-instance-names": []object{{"vpn-name": vpn, "associated-subnet-type": "V4Subnet"}},
		"odl-l3vpn:adjacency": []object{{
			"ip_address": p.address().String() + "/32", "mac_address": p.mac().String(), "adjacency_type": "primary-adjacency",
			"subnet_id": p.subnet(), "subnet_gateway_ip": p.gateway(),
		}},
	})
}

// removeVPNInterface removes a pod's vpn-interface from a vpn, and waits until the controller has finished.
// Otherwise Neon would also remove data that are written meanwhile.
func removeVPNInterface(t *testing.T, c *odl.Controller, p pod, vpn string) {
	t.Helper()
	ask(t, c, http.MethodDelete, "/restconf/config/l3vpn:vpn-interfaces/vpn-interface/"+url.QueryEscape(p.name()), "", http.StatusOK)
	path := fmt.Sprintf("/restconf/operational/odl-l3vpn:vpn-interface-op-data/vpn-interface-op-data-entry/%s/%s", url.QueryEscape(p.name()), url.QueryEscape(vpn))
	require.Eventually(t, func() bool {
		status, _, err := c.Request(t.Context(), http.MethodGet, path, "")
		return err == nil && status == http.StatusNotFound
	}, reachTimeout, 100*time.Millisecond)
}

// putNamespace writes a namespace as members of a VPN: two pods on the first host, and one on the
// second. Pods that were attached before also get a network.
func putNamespace(t *testing.T, c *odl.Controller, name string, network int, vpn string) []pod {
	t.Helper()
	pods := []pod{
		{namespace: name, network: network, number: 11, host: c.Lab.Hosts[0]},
		{namespace: name, network: network, number: 12, host: c.Lab.Hosts[0]},
		{namespace: name, network: network + 100, number: 11, host: c.Lab.Hosts[1]},
	}
	putELAN(t, c, pods[0])
	putELAN(t, c, pods[2])
	plug(t, c, pods[1])
	for _, p := range pods {
		putPod(t, c, p, vpn)
	}
	plug(t, c, pods[0])
	plug(t, c, pods[2])
	return pods
}

// reachTimeout bounds the time until pods reach each other.
const reachTimeout = 90 * time.Second

// requireReach waits until one pod reaches another.
func requireReach(t *testing.T, c *odl.Controller, from, to pod) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), reachTimeout)
	defer cancel()
	require.NoError(t, ovnhost.Poll(ctx, func(ctx context.Context) error { return c.Lab.Ping(ctx, from.name(), to.address()) }))
}

// requireApart requires that one pod does not reach another, while other pods reach each other.
func requireApart(t *testing.T, c *odl.Controller, from, to pod) {
	t.Helper()
	out, err := c.Lab.Exec(t.Context(), from.name(), "ping", "-n", "-c", "5", "-i", "0.2", "-W", "2", to.address().String())
	require.Error(t, err, "%s reaches %s: %s", from.name(), to.name(), out)
	require.Contains(t, out, "0 received")
}

// requireImported waits until the FIB of a vpn has the prefix of a pod of another vpn.
func requireImported(t *testing.T, c *odl.Controller, rd string, p pod) {
	t.Helper()
	path := fmt.Sprintf("/restconf/config/odl-fib:fibEntries/vrfTables/%s/vrfEntry/%s", url.QueryEscape(rd), url.QueryEscape(p.address().String()+"/32"))
	require.Eventually(t, func() bool {
		status, answer, err := c.Request(t.Context(), http.MethodGet, path, "")
		return err == nil && status == http.StatusOK && strings.Contains(string(answer), `"origin":"si"`)
	}, reachTimeout, time.Second)
}
