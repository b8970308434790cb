package agentstream

import (
	"encoding/json"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/physical"
	"github.com/coe-bridge/coe-bridge/yang"
)

const (
	pod1 = "9f2a6d5e-0000-4000-8000-000000000001"
	pod2 = "9f2a6d5e-0000-4000-8000-000000000002"
)

func leased(addr, network, gateway string) coe.LeasedAddress {
	return coe.LeasedAddress{
		Address: netip.MustParseAddr(addr), Network: netip.MustParsePrefix(network), Gateway: netip.MustParseAddr(gateway),
	}
}

// lease is the lease of a pod on a node; its interface has the pod's UID.
func lease(uid, node string, addresses ...coe.LeasedAddress) *coe.Lease {
	if len(addresses) == 0 {
		addresses = []coe.LeasedAddress{leased("192.168.10.3", "192.168.10.0/29", "192.168.10.1")}
	}
	return &coe.Lease{
		PodUID: uid, InterfaceUID: uid, Seq: 7, Namespace: "default", Pod: "busybox1", Name: "default:busybox1", Primary: true,
		Node: netip.MustParseAddr(node), MAC: "0a:58:c0:a8:0a:03", Addresses: addresses,
	}
}

const head = `"operation":"put","pod-uid":"` + pod1 + `","interface-uid":"` + pod1 + `","namespace":"default","pod":"busybox1",
	"name":"default:busybox1","parent-interface":"tapb4b7b03b-97","node":"192.168.33.12","mac-address":"0a:58:c0:a8:0a:03",`

func TestRecords(t *testing.T) {
	block := leased("192.168.10.3", "192.168.10.0/29", "192.168.10.1")
	for name, c := range map[string]struct {
		lease *coe.Lease
		mtu   uint16
		want  string
		// physical is the physical network of the namespace; empty for none.
		physical string
	}{
		"of a pool": {lease: lease(pod1, "192.168.33.12", block), want: `"primary":true,
			"address":[{"ip":"192.168.10.3","prefix-length":29,"gateway":"192.168.10.1"}],
			"route":[{"destination":"0.0.0.0/0","next-hop":"192.168.10.1"}]`},
		"with an MTU": {lease: lease(pod1, "192.168.33.12", block), mtu: 1442, want: `"primary":true,"mtu":1442,
			"address":[{"ip":"192.168.10.3","prefix-length":29,"gateway":"192.168.10.1"}],
			"route":[{"destination":"0.0.0.0/0","next-hop":"192.168.10.1"}]`},
		"of no pool, routed singly": {lease: lease(pod1, "192.168.33.12", leased("10.11.2.28", "169.254.1.1/32", "169.254.1.1")), want: `"primary":true,
			"address":[{"ip":"10.11.2.28","prefix-length":32,"gateway":"169.254.1.1"}],
			"route":[{"destination":"169.254.1.1/32"},{"destination":"0.0.0.0/0","next-hop":"169.254.1.1"}]`},
		"of both families": {lease: lease(pod1, "192.168.33.12", block, leased("fd00::13", "fd00::/120", "fd00::1")), want: `"primary":true,
			"address":[{"ip":"192.168.10.3","prefix-length":29,"gateway":"192.168.10.1"},{"ip":"fd00::13","prefix-length":120,"gateway":"fd00::1"}],
			"route":[{"destination":"0.0.0.0/0","next-hop":"192.168.10.1"},{"destination":"::/0","next-hop":"fd00::1"}]`},
		"of a physical network": {lease: lease(pod1, "192.168.33.12", block, leased("fd00::13", "fd00::/120", "fd00::1")), physical: "default=plant,subnet=192.168.10.0/24,subnet=fd00::/120", want: `"primary":true,
			"address":[{"ip":"192.168.10.3","prefix-length":29,"gateway":"192.168.10.1"},{"ip":"fd00::13","prefix-length":120,"gateway":"fd00::1"}],
			"route":[{"destination":"192.168.10.0/24"},{"destination":"0.0.0.0/0","next-hop":"192.168.10.1"},{"destination":"::/0","next-hop":"fd00::1"}],
			"physical-network":"plant"`},
		"outside the physical network": {lease: lease(pod1, "192.168.33.12", block), physical: "default=plant,subnet=10.50.0.0/24", want: `"primary":true,
			"address":[{"ip":"192.168.10.3","prefix-length":29,"gateway":"192.168.10.1"}],
			"route":[{"destination":"0.0.0.0/0","next-hop":"192.168.10.1"}]`},
		"with DHCP": {lease: func() *coe.Lease {
			l := lease(pod1, "192.168.33.12", block)
			l.DHCP, l.DNS = true, []netip.Addr{netip.MustParseAddr("10.96.0.10"), netip.MustParseAddr("fd00::a")}
			return l
		}(), want: `"primary":true,"address":[{"ip":"192.168.10.3","prefix-length":29,"gateway":"192.168.10.1"}],
			"route":[{"destination":"0.0.0.0/0","next-hop":"192.168.10.1"}],
			"dhcp":{"lease-time":900,"dns-server":["10.96.0.10","fd00::a"]}`},
		"not the first": {lease: func() *coe.Lease {
			l := lease(pod1, "192.168.33.12", block)
			l.Primary = false
			return l
		}(), want: `"primary":false,"address":[{"ip":"192.168.10.3","prefix-length":29,"gateway":"192.168.10.1"}]`},
	} {
		t.Run(name, func(t *testing.T) {
			var all physical.Networks
			if c.physical != "" {
				p, err := physical.Parse(c.physical)
				require.NoError(t, err)
				require.NoError(t, all.Add(p))
			}
			config := &Config{MTU: c.mtu, DHCPLeaseTime: 900, Physical: all}
			begun, err := config.encode(c.lease)
			require.NoError(t, err)
			content := confirm(begun, true)
			require.JSONEq(t, "{"+head+c.want+`,"confirmed":true}`, string(content))
			require.NotContains(t, string(content), "\n")
			obeys(t, content)
		})
	}
}

func TestDeletedObeysTheModule(t *testing.T) {
	content := encodeDeleted(pod1 + "/" + pod2)
	require.JSONEq(t, `{"operation":"deleted","pod-uid":"`+pod1+`","interface-uid":"`+pod2+`"}`, string(content))
	judge(t, "interface-changed", content)
	judge(t, "snapshot-begin", []byte("{}"))
	judge(t, "snapshot-complete", []byte("{}"))
}

// obeys: a record is valid by coe-agent, as an entry of the list and as a notification.
func obeys(t *testing.T, content []byte) {
	t.Helper()
	schema, err := yang.Load()
	require.NoError(t, err)
	_, err = schema.DecodeJSON([]byte(`{"coe-agent:interfaces":{"interface":[`+string(asEntry(content))+`]}}`), nil, "", yang.Strict)
	require.NoError(t, err)
	judge(t, "interface-changed", content)
}

// judge validates a notification with libyang.
func judge(t *testing.T, notification string, content []byte) {
	t.Helper()
	if testing.Short() {
		return // needs yanglint
	}
	lint, err := exec.LookPath("yanglint")
	require.NoError(t, err, "install the Debian package libyang-tools")
	text, err := json.Marshal(map[string]json.RawMessage{"coe-agent:" + notification: content})
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "notification.json")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	out, err := exec.CommandContext(t.Context(), lint, "-t", "notif", "-p", "../../yang", "../../yang/coe-agent.yang", file).CombinedOutput()
	require.NoError(t, err, "%s: %s", content, out)
	require.Empty(t, string(out))
}

func TestConfirmations(t *testing.T) {
	l := lease(pod1, "192.168.33.12")
	want := ConfirmationOf(l).Encode()
	require.JSONEq(t, `{"name":"default:busybox1","node":"192.168.33.12","mac":"0a:58:c0:a8:0a:03","addresses":["192.168.10.3"]}`, string(want))
	require.Equal(t, pod1+"/"+pod1, RecordName(l.Key()))
	for name, change := range map[string]func(*coe.Lease){
		"name": func(l *coe.Lease) { l.Name = "default:other" },
		"node": func(l *coe.Lease) { l.Node = netip.MustParseAddr("192.168.33.13") },
		"MAC":  func(l *coe.Lease) { l.MAC = "0a:58:c0:a8:0a:04" },
		"address": func(l *coe.Lease) {
			l.Addresses = []coe.LeasedAddress{leased("192.168.10.4", "192.168.10.0/29", "192.168.10.1")}
		},
	} {
		other := *l
		change(&other)
		require.NotEqual(t, want, ConfirmationOf(&other).Encode(), name)
	}
}
