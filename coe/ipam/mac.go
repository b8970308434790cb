package ipam

import (
	"crypto/sha256"
	"net"
	"net/netip"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe"
)

// chooseMAC sets the MAC address of a lease, unique in its elan. For a primary interface it is
// the MAC address that the source requests (port-mac-address). Otherwise it is the one that the
// lease had before with the same addresses, or one made from the first address. If another
// interface has the requested MAC address, the request stays denied until the lease changes. So
// the MAC address of a running pod does not change when the other interface is deleted.
func chooseMAC(e *elan, p *coe.Pod, l, old *coe.Lease) {
	free := func(mac string) bool {
		owner, taken := e.macs[mac]
		return !taken || owner == l.Key()
	}
	same := old != nil && old.Namespace == l.Namespace && old.Node == l.Node && slices.Equal(old.Addresses, l.Addresses)
	wanted := unicastMAC(p.MAC)
	if !l.Primary {
		wanted = ""
	}
	denied := wanted != "" && (same && wanted == old.DeniedMAC || !free(wanted))
	l.DeniedMAC = ""
	if denied {
		l.DeniedMAC = wanted
	}
	switch {
	case wanted != "" && !denied:
		l.MAC = wanted
	case same && free(old.MAC):
		l.MAC = old.MAC
	default:
		l.MAC = freeMAC(l.Addresses[0].Address, free)
	}
}

// freeMAC returns a free MAC address made from an address. If addressMAC of the address is not
// free, it tries the hash of the address, then the hash of that hash, and so on.
func freeMAC(addr netip.Addr, free func(string) bool) string {
	mac := addressMAC(addr)
	for seed := addr.AsSlice(); !free(mac); {
		sum := sha256.Sum256(seed)
		seed, mac = sum[:], hardware(sum[:4])
	}
	return mac
}

// unicastMAC returns a MAC address in lower case with colons. It returns an empty text if s is
// not a MAC address that an interface can have.
func unicastMAC(s string) string {
	mac, err := net.ParseMAC(s)
	if err != nil || len(mac) != 6 || mac[0]&1 != 0 || slices.Max(mac) == 0 {
		return ""
	}
	return mac.String()
}

// addressMAC returns the MAC address of 0a:58 and an IPv4 address, or of 0a:58 and 4 bytes of the
// hash of an IPv6 address.
func addressMAC(addr netip.Addr) string {
	if addr.Is4() {
		return hardware(addr.AsSlice())
	}
	sum := sha256.Sum256(addr.AsSlice())
	return hardware(sum[:4])
}

func hardware(last4 []byte) string {
	return net.HardwareAddr(append([]byte{0x0a, 0x58}, last4...)).String()
}
