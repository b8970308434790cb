package yang

import (
	"net/netip"
	"strings"
	"unicode"
)

// knownType is a typedef of RFC 6991 that Go code checks, because it has a canonical form
// and is used for every pod. A test compares the code with the patterns of the typedef. A
// typedef that is derived from it has its patterns, but not its canonical form.
type knownType struct {
	want      string
	patterns  int  // number of its patterns
	absent    bool // whether the lenient mode accepts "" as absent
	canonical func(string) (string, bool)
}

var knownTypes = map[string]knownType{
	"ipv4-address":         {"an IPv4 address", 1, true, ipv4Address},
	"ipv6-address":         {"an IPv6 address", 2, true, ipv6Address},
	"ipv4-address-no-zone": {"an IPv4 address", 2, true, ipv4Address},
	"ipv6-address-no-zone": {"an IPv6 address without a zone", 3, true, ipv6AddressNoZone},
	"ipv4-prefix":          {"an IPv4 prefix", 1, true, ipv4Prefix},
	"ipv6-prefix":          {"an IPv6 prefix", 2, true, ipv6Prefix},
	"uuid":                 {"a UUID", 1, false, uuid},
	"phys-address":         {"octets in hexadecimal with colons between them", 1, false, octets},
	"hex-string":           {"octets in hexadecimal with colons between them", 1, false, octets},
	"mac-address":          {"six octets in hexadecimal with colons between them", 1, false, macAddress},
}

// ipv4Address accepts no zone, although the pattern does: no address of an interface has a
// zone, and no other package supports one.
func ipv4Address(text string) (string, bool) {
	addr, err := netip.ParseAddr(text)
	return text, err == nil && addr.Is4()
}

func ipv6Address(text string) (string, bool) {
	addr, err := netip.ParseAddr(text)
	if err != nil || !addr.Is6() || !isZone(addr.Zone()) {
		return "", false
	}
	return addr.String(), true
}

func ipv6AddressNoZone(text string) (string, bool) {
	if strings.Contains(text, "%") {
		return "", false
	}
	return ipv6Address(text)
}

func isZone(zone string) bool {
	return !strings.ContainsFunc(zone, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsNumber(r) })
}

func ipv4Prefix(text string) (string, bool) {
	prefix, err := netip.ParsePrefix(text)
	if err != nil || !prefix.Addr().Is4() {
		return "", false
	}
	return prefix.Masked().String(), true
}

// ipv6Prefix accepts lengths such as 08, like the pattern; the pattern of IPv4 does not.
func ipv6Prefix(text string) (string, bool) {
	address, length, _ := strings.Cut(text, "/")
	if len(length) == 2 {
		length = strings.TrimPrefix(length, "0")
	}
	prefix, err := netip.ParsePrefix(address + "/" + length)
	if err != nil || !prefix.Addr().Is6() {
		return "", false
	}
	return prefix.Masked().String(), true
}

// uuid is 8-4-4-4-12 hexadecimal digits.
func uuid(text string) (string, bool) {
	if len(text) != 36 {
		return "", false
	}
	for i := range len(text) {
		switch i {
		case 8, 13, 18, 23:
			if text[i] != '-' {
				return "", false
			}
		default:
			if !isHex(text[i]) {
				return "", false
			}
		}
	}
	return strings.ToLower(text), true
}

// octets accepts an empty text, or pairs of hexadecimal digits with colons between them.
func octets(text string) (string, bool) {
	if text != "" && len(text)%3 != 2 {
		return "", false
	}
	for i := range len(text) {
		if i%3 == 2 && text[i] != ':' || i%3 != 2 && !isHex(text[i]) {
			return "", false
		}
	}
	return strings.ToLower(text), true
}

func macAddress(text string) (string, bool) {
	if len(text) != 17 {
		return "", false
	}
	return octets(text)
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}
