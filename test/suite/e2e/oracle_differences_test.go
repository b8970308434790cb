package e2e

import "regexp"

// difference is where we differ from Oxygen on purpose. Patterns match the whole.
type difference struct {
	when   string // of the exchange's name
	path   string // of the leaf
	oxygen string // its value there
	ours   string
	why    string
}

// nothing stands for a leaf that is not there.
const nothing = "nothing"

// The phases of what was recorded: while no port was plugged in; after the ports of
// the namespace default were; after an address was changed; after the last pod.
const (
	always    = `.*`
	unplugged = `mapping-bierman/.*`
	plugged   = `mapping-after-(ovs|restart)/.*|mapping-update-delete/0.*`
	changed   = `mapping-update-delete/0.*`
	deleted   = `mapping-update-delete/1.*`
)

// differences are all of them. Each occurs: one that does not fails the test.
var differences = []difference{
	{
		always, `elan-instances/elan-instance\[.*\]/(mac-timeout|elan-tag)`, `300|500\d`, nothing,
		"the controller adds them for itself; a bridge never writes what is the controller's",
	},
	{
		always, `elan-instances/elan-instance\[192.168.33.12:default\]/segmentation-id`, `7`, `70000`,
		"the VNI comes from a pool of ours, another for each elan-instance: what pods name need not be unique",
	},
	{
		always, `vpn-instances/vpn-instance\[.*\]/ipv4-family/route-distinguisher\[100:1\]`, `100:1`, nothing,
		"one route distinguisher for every vpn-instance lets only the first come up",
	},
	{
		always, `vpn-instances/vpn-instance\[(default|web)\]/ipv4-family/route-distinguisher\[100:[23]\]`, nothing, `100:[23]`,
		"each vpn-instance has a route distinguisher of its own",
	},
	{
		always, `vpn-instances/vpn-instance\[.*\]/ipv4-family/vpnTargets/vpnTarget\[100:[123]\]/vrfRT(Value|Type)`, nothing, `100:[123]|both`,
		"route targets say what reaches what: its own, and without isolation the common one",
	},
	{
		unplugged, `elan-interfaces/elan-interface\[.*\]/static-mac-entries\[.*\]/.*`, nothing, `0a:58:0a:0b:0[23]:..|10\.11\.[23]\.\d+`,
		"the MAC address is chosen with the address, not learned from a port",
	},
	{
		plugged, `elan-interfaces/elan-interface\[web:web1\]/static-mac-entries\[.*\]/.*`, nothing, `0a:58:0a:0b:03:05|10\.11\.3\.5`,
		"likewise; no port was plugged in for this pod",
	},
	{
		unplugged, `interfaces/interface\[.*\]/odl-interface:parent-interface`, nothing, `tap[0-9a-f]{8}-[0-9a-f]{2}`,
		"the port's name follows from interface and pod, so it is known before the port is there",
	},
	{
		plugged, `interfaces/interface\[default:.*\]/odl-interface:parent-interface`, `veth0a1b2c3[de]`, `tap[0-9a-f]{8}-[0-9a-f]{2}`,
		"likewise: whoever plugs the pod in uses this name",
	},
	{
		plugged, `interfaces/interface\[web:web1\]/odl-interface:parent-interface`, nothing, `tap[0-9a-f]{8}-[0-9a-f]{2}`,
		"likewise; no port was plugged in for this pod",
	},
	{
		unplugged, `vpn-interfaces/vpn-interface\[.*\]/.*`, nothing, `.*`,
		"the vpn-interface is there with the pod's address, not only with its port",
	},
	{
		plugged, `vpn-interfaces/vpn-interface\[web:web1\]/.*`, nothing, `.*`,
		"likewise; no port was plugged in for this pod, whose gateway would be 169.254.1.1: its node is not known",
	},
	{
		plugged, `vpn-interfaces/vpn-interface\[default:.*\]/odl-l3vpn:adjacency\[.*\]/subnet_id`, `b498b7ae-4cbd-3563-b75d-7eaf444510c6`, `[0-9a-f-]{36}`,
		"any uuid that is stable for the subnet will do",
	},
	{
		changed, `elan-interfaces/elan-interface\[default:busybox1\]/static-mac-entries\[0a:58:0a:0b:02:63\]/.*`, nothing, `0a:58:0a:0b:02:63|10\.11\.2\.99`,
		"a changed address is followed; there the MAC entries are lost",
	},
	{
		changed, `interfaces/interface\[default:busybox1\]/odl-interface:parent-interface`, nothing, `tap[0-9a-f]{8}-[0-9a-f]{2}`,
		"likewise; there the port is lost",
	},
	{
		changed, `vpn-interfaces/vpn-interface\[default:busybox1\]/odl-l3vpn:adjacency\[10.11.2.28/32\]/.*`, `.*`, nothing,
		"likewise; there the vpn-interface keeps the old address",
	},
	{
		changed, `vpn-interfaces/vpn-interface\[default:busybox1\]/odl-l3vpn:adjacency\[10.11.2.99/32\]/.*`, nothing, `.*`,
		"likewise; there the vpn-interface keeps the old address",
	},
	{
		deleted, `elan-instances/elan-instance\[.*\]/.*`, `.*`, nothing,
		"an elan-instance goes with its last pod (TC 4); there it stays for ever",
	},
	{
		deleted, `vpn-instances/vpn-instance\[.*\]/.*`, `.*`, nothing,
		"a vpn-instance goes with its last pod (TC 4); there it stays for ever",
	},
}

func (d difference) matches(name, path, theirs, ours string) bool {
	return whole(d.when, name) && whole(d.path, path) && whole(d.oxygen, theirs) && whole(d.ours, ours)
}

func whole(pattern, text string) bool {
	return regexp.MustCompile(`^(?:` + pattern + `)$`).MatchString(text)
}
