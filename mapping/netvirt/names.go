package netvirt

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxVPNName is the longest vpn-name that l3vpn allows ("string 1..40").
const maxVPNName = 40

// vpnNameBegin is how much of a long namespace its vpn-name begins with: with a
// colon and the 26 letters of the hash, 40 characters.
const vpnNameBegin = 13

var vpnNameHash = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)

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

// VPNName is the name that a namespace's vpn-instance gets: the namespace, or
// where that is longer than l3vpn's 40 characters, the beginning of the
// namespace, a colon and 128 bits of its hash. A namespace holds no colon, so no
// two namespaces get the same name.
func VPNName(namespace string) string {
	if len(namespace) <= maxVPNName {
		return namespace
	}
	begin := namespace[:vpnNameBegin]
	for !utf8.ValidString(begin) && len(begin) > 0 {
		begin = begin[:len(begin)-1] // a character is not cut in two
	}
	sum := sha256.Sum256([]byte(namespace))
	return begin + ":" + vpnNameHash.EncodeToString(sum[:16])
}

// VPNNames lists the names that a namespace's vpn-instance may have: VPNName, and
// for a long namespace the name that releases before November 2026 gave. An
// older name is kept while the vpn-instance lives. It may be the name of another
// namespace's vpn-instance: VPNInstance.Namespace tells.
func VPNNames(namespace string) []string {
	if len(namespace) <= maxVPNName {
		return []string{namespace}
	}
	return []string{VPNName(namespace), namespace[:maxVPNName-9] + "-" + hash(namespace)[:8]}
}

// MayName reports whether a vpn-instance of this name may be the namespace's.
func MayName(vpn, namespace string) bool {
	return vpn == namespace && len(namespace) <= maxVPNName || len(namespace) > maxVPNName && slices.Contains(VPNNames(namespace), vpn)
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
