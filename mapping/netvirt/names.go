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

// maxVPNName is the maximum length of a vpn-name in l3vpn ("string 1..40").
const maxVPNName = 40

// vpnNameBegin is the length of the part of a long namespace that its vpn-name begins
// with. With a colon and the 26 characters of the hash, the name has 40 characters.
const vpnNameBegin = 13

var vpnNameHash = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)

// ELANName returns the name of the elan-instance of a namespace on a node,
// "node-ip:namespace" (Netvirt COE Integration, "Create Pod").
func ELANName(node netip.Addr, namespace string) string {
	return node.String() + ":" + namespace
}

// ParseELANName splits the name of an elan-instance at its last colon: the node's address
// may be IPv6, and a namespace contains no colon.
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

// PhysicalNetworkName returns the name that OVN has for a physical network at a node, in ovn-bridge-mappings of the node. It has
// neither a colon nor a comma.
func PhysicalNetworkName(network string, node netip.Addr) string {
	return "coe-" + network + "@" + strings.ReplaceAll(node.String(), ":", "-")
}

// VPNName returns the name of a namespace's vpn-instance: the namespace or, if that is
// longer than the 40 characters of l3vpn, its beginning, a colon and 128 bits of its hash.
// A namespace contains no colon, so the names of two namespaces differ.
func VPNName(namespace string) string {
	if len(namespace) <= maxVPNName {
		return namespace
	}
	begin := namespace[:vpnNameBegin]
	for !utf8.ValidString(begin) && len(begin) > 0 {
		begin = begin[:len(begin)-1] // do not cut a character
	}
	sum := sha256.Sum256([]byte(namespace))
	return begin + ":" + vpnNameHash.EncodeToString(sum[:16])
}

// VPNNames returns the names that a namespace's vpn-instance may have: VPNName and, for a
// long namespace, the name that releases before November 2026 gave. A vpn-instance keeps
// its older name. Two namespaces may share an older name; VPNInstance.Namespace
// distinguishes them.
func VPNNames(namespace string) []string {
	if len(namespace) <= maxVPNName {
		return []string{namespace}
	}
	return []string{VPNName(namespace), namespace[:maxVPNName-9] + "-" + hash(namespace)[:8]}
}

// MayName reports whether a vpn-instance of this name may belong to the namespace.
func MayName(vpn, namespace string) bool {
	return vpn == namespace && len(namespace) <= maxVPNName || len(namespace) > maxVPNName && slices.Contains(VPNNames(namespace), vpn)
}

// InterfaceName returns the name of a pod's interface: "namespace:pod-name" for the
// primary interface (Netvirt COE Integration, "Create Pod"), "namespace:pod-name:interface-uid"
// for others.
func InterfaceName(namespace, pod, uid string, primary bool) string {
	if primary {
		return namespace + ":" + pod
	}
	return namespace + ":" + pod + ":" + uid
}

// ParseInterfaceName splits the name of an interface. uid is empty for the primary
// interface.
func ParseInterfaceName(name string) (namespace, pod, uid string, err error) {
	namespace, pod, ok := strings.Cut(name, ":")
	if !ok {
		return "", "", "", fmt.Errorf("interface name %q: want namespace:pod-name", name)
	}
	pod, uid, _ = strings.Cut(pod, ":")
	return namespace, pod, uid, nil
}

// PortName returns the name of an interface's port on the switch of its node: "tap", 8
// hexadecimal digits, a dash and 2 hexadecimal digits of a hash of interface name and pod
// UID. It is a valid Linux device name. OpenDaylight considers names of this form unique
// without the datapath ID of the node.
func PortName(interfaceName, podUID string) string {
	sum := sha256.Sum256([]byte(interfaceName + "\x00" + podUID))
	name := []byte("tap........-..")
	hex.Encode(name[3:], sum[:4])
	hex.Encode(name[12:], sum[4:5])
	return string(name)
}

// NodePortName returns the name of a port of a node on its switch, of the form of PortName, by the name of the port in
// the network. Only the OpenDaylight backend needs it. Agents know the same rule.
func NodePortName(name string) string { return PortName(name, "") }

func hash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// IsolatingACLName returns the name of the ACL that isolates pods of a namespace in a direction.
func IsolatingACLName(namespace string, d Direction) string {
	return NamePart(namespace) + ":isolated:" + string(d)
}

// NamePart returns a text with every character as %HH that a part of a name of an ACL, an ACE or a
// RemoteGroup must not have. Names of Kubernetes have none.
func NamePart(s string) string {
	var out strings.Builder
	for _, c := range []byte(s) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '.', c == '_':
			out.WriteByte(c)
		default:
			fmt.Fprintf(&out, "%%%02x", c)
		}
	}
	return out.String()
}
