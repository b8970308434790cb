package ipam

import (
	"crypto/sha256"
	"net"
	"net/netip"
	"slices"

	"github.com/coe-bridge/coe-bridge/coe"
)

// chooseMAC sets the MAC address of a lease, unique in its elan: the one that
// the source wants for the primary interface (port-mac-address), else the one
// that it had before with the same addresses, else one made of its first
// address. A wanted one that another interface has is denied for as long as the
// lease stays as it is, so that no running pod's address changes when the other
// goes.
func chooseMAC(e *elan, w wish, l, old *coe.Lease) {
	free := func(mac string) bool {
		owner, taken := e.macs[mac]
		return !taken || owner == w.key
	}
	same := old != nil && old.Namespace == l.Namespace && old.Node == l.Node && slices.Equal(old.Addresses, l.Addresses)
	wanted := unicastMAC(w.pod.MAC)
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

// freeMAC is the MAC address that is made of an address, or while that is not
// free of its hash, and the hash's hash.
func freeMAC(addr netip.Addr, free func(string) bool) string {
	mac := addressMAC(addr)
	for seed := addr.AsSlice(); !free(mac); {
		sum := sha256.Sum256(seed)
		seed, mac = sum[:], hardware(sum[:4])
	}
	return mac
}

// unicastMAC returns the MAC address in lower case with colons, empty for what
// is none that an interface can have.
func unicastMAC(s string) string {
	mac, err := net.ParseMAC(s)
	if err != nil || len(mac) != 6 || mac[0]&1 != 0 || slices.Max(mac) == 0 {
		return ""
	}
	return mac.String()
}

// addressMAC is 0a:58 and the IPv4 address, or 0a:58 and 4 bytes of the IPv6
// address's hash.
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
