package netvirt

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strings"
)

// maxVPNName is the longest vpn-name that l3vpn allows ("string 1..40").
const maxVPNName = 40

// ELANName is the name of the elan-instance of a namespace on a node,
// "node-ip:namespace" (spec, "Create Pod").
func ELANName(node netip.Addr, namespace string) string {
	return node.String() + ":" + namespace
}

// ParseELANName takes an elan-instance's name apart, at its last colon, since
// the node's address may be IPv6 and a namespace holds no colon.
func ParseELANName(name string) (node netip.Addr, namespace string, err error) {
	i := strings.LastIndexByte(name, ':')
	if i < 0 {
		return netip.Addr{}, "", fmt.Errorf("elan-instance name %q: want node-ip:namespace", name)
	}
	node, err = netip.ParseAddr(name[:i])
	if err != nil {
		return netip.Addr{}, "", fmt.Errorf("elan-instance name %q: %w", name, err)
	}
	return node, name[i+1:], nil
}

// VPNName is the name of a namespace's vpn-instance: the namespace, or where
// that is longer than l3vpn's 40 characters, its first 31 characters, a dash and
// 8 hex digits of its hash.
func VPNName(namespace string) string {
	if len(namespace) <= maxVPNName {
		return namespace
	}
	return namespace[:maxVPNName-9] + "-" + hash(namespace)[:8]
}

// InterfaceName is the name of a pod's interface: "namespace:pod-name" for the
// primary one (spec, "Create Pod"), "namespace:pod-name:interface-uid" for the
// others.
func InterfaceName(namespace, pod, uid string, primary bool) string {
	if primary {
		return namespace + ":" + pod
	}
	return namespace + ":" + pod + ":" + uid
}

// ParseInterfaceName takes an interface's name apart, at its first colon and,
// for one that is not primary, at the next; uid is empty for the primary one.
func ParseInterfaceName(name string) (namespace, pod, uid string, err error) {
	namespace, pod, ok := strings.Cut(name, ":")
	if !ok {
		return "", "", "", fmt.Errorf("interface name %q: want namespace:pod-name", name)
	}
	pod, uid, _ = strings.Cut(pod, ":")
	return namespace, pod, uid, nil
}

// PortName is the name of an interface's port on its node's switch: "tap", 8 hex
// digits, a dash and 2 hex digits, all of one hash of interface name and pod
// uid. It fits a Linux device name and is one that OpenDaylight takes as unique
// without the node's datapath id before it.
func PortName(interfaceName, podUID string) string {
	sum := sha256.Sum256([]byte(interfaceName + "\x00" + podUID))
	name := []byte("tap........-..")
	hex.Encode(name[3:], sum[:4])
	hex.Encode(name[12:], sum[4:5])
	return string(name)
}

func hash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}
