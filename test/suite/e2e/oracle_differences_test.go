package e2e

import "regexp"

// difference is an intended difference from Oxygen. A pattern must match the whole text.
type difference struct {
	when   string // pattern of the exchange's name
	path   string // pattern of the leaf's path
	oxygen string // pattern of the leaf's value in Oxygen
	ours   string
	why    string
}

// nothing is the value of a missing leaf.
const nothing = "nothing"

// The phases of the recording: before a port was plugged in; after the ports of the namespace default
// were plugged in; after an address was changed; after the last pod was deleted.
const (
	always    = `.*`
	unplugged = `mapping-bierman/.*`
	plugged   = `mapping-after-(ovs|restart)/.*|mapping-update-delete/0.*`
	changed   = `mapping-update-delete/0.*`
	deleted   = `mapping-update-delete/1.*`
)

// differences has all intended differences. The test fails if one does not occur.
var differences = []difference{
	{
		always, `elan-instances/elan-instance\[.*\]/(mac-timeout|elan-tag)`, `300|500\d`, nothing,
		"the controller adds these leaves for itself; a bridge never writes them",
	},
	{
		always, `elan-instances/elan-instance\[192.168.33.12:default\]/segmentation-id`, `7`, `70000`,
		"the bridge chooses a unique VNI for each elan-instance, because the numbers in pods need not be unique",
	},
	{
		always, `vpn-instances/vpn-instance\[.*\]/ipv4-family/route-distinguisher\[100:1\]`, `100:1`, nothing,
		"if all vpn-instances had the same route distinguisher, only the first one would work",
	},
	{
		always, `vpn-instances/vpn-instance\[(default|web)\]/ipv4-family/route-distinguisher\[100:[23]\]`, nothing, `100:[23]`,
		"each vpn-instance has a route distinguisher of its own",
	},
	{
		always, `vpn-instances/vpn-instance\[.*\]/ipv4-family/vpnTargets/vpnTarget\[100:[123]\]/vrfRT(Value|Type)`, nothing, `100:[123]|both`,
		"route targets define which pods reach each other: each vpn-instance has its own, and without isolation the common one",
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
		"likewise: the agent that plugs the pod in uses this name",
	},
	{
		plugged, `interfaces/interface\[web:web1\]/odl-interface:parent-interface`, nothing, `tap[0-9a-f]{8}-[0-9a-f]{2}`,
		"likewise; no port was plugged in for this pod",
	},
	{
		unplugged, `vpn-interfaces/vpn-interface\[.*\]/.*`, nothing, `.*`,
		"the vpn-interface exists as soon as the pod has an address, also without a port",
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
		"the bridge follows a changed address; Oxygen loses the MAC entries",
	},
	{
		changed, `interfaces/interface\[default:busybox1\]/odl-interface:parent-interface`, nothing, `tap[0-9a-f]{8}-[0-9a-f]{2}`,
		"likewise; Oxygen loses the port",
	},
	{
		changed, `vpn-interfaces/vpn-interface\[default:busybox1\]/odl-l3vpn:adjacency\[10.11.2.28/32\]/.*`, `.*`, nothing,
		"likewise; in Oxygen the vpn-interface keeps the old address",
	},
	{
		changed, `vpn-interfaces/vpn-interface\[default:busybox1\]/odl-l3vpn:adjacency\[10.11.2.99/32\]/.*`, nothing, `.*`,
		"likewise; in Oxygen the vpn-interface keeps the old address",
	},
	{
		deleted, `elan-instances/elan-instance\[.*\]/.*`, `.*`, nothing,
		"an elan-instance is removed with its last pod (TC 4); Oxygen never removes it",
	},
	{
		deleted, `vpn-instances/vpn-instance\[.*\]/.*`, `.*`, nothing,
		"a vpn-instance is removed with its last pod (TC 4); Oxygen never removes it",
	},
}

func (d difference) matches(name, path, theirs, ours string) bool {
	return whole(d.when, name) && whole(d.path, path) && whole(d.oxygen, theirs) && whole(d.ours, ours)
}

func whole(pattern, text string) bool {
	return regexp.MustCompile(`^(?:` + pattern + `)$`).MatchString(text)
}
