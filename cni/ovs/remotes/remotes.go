// Package remotes reads the addresses of OVSDB servers: those that a switch connects to, and those at which its own server listens. It reports
// whether other machines can read the traffic. The package connects to nothing, and knows neither the switch nor its database.
package remotes

import (
	"net/netip"
	"strconv"
	"strings"
)

// Remote is an OVSDB server on the network: tcp:HOST:PORT or ssl:HOST:PORT.
type Remote struct {
	Scheme, Host string
	Port         uint16
}

// defaultPort is the port of a remote that names none.
const defaultPort = 6640

// Parse returns the network servers in a comma-separated list. It skips unix sockets and
// entries that OVN does not accept.
func Parse(list string) (all []Remote) {
	for entry := range strings.SplitSeq(list, ",") {
		scheme, at, _ := strings.Cut(strings.TrimSpace(entry), ":")
		if scheme != "tcp" && scheme != "ssl" {
			continue
		}
		r := Remote{scheme, at, defaultPort}
		if i := strings.LastIndexByte(at, ':'); i > strings.LastIndexByte(at, ']') {
			port, err := strconv.ParseUint(at[i+1:], 10, 16)
			if err != nil || port == 0 {
				continue
			}
			r.Host, r.Port = at[:i], uint16(port)
		}
		r.Host = strings.Trim(r.Host, "[]")
		all = append(all, r)
	}
	return all
}

// Cleartext reports whether other machines can read and change the traffic with r.
func (r Remote) Cleartext() bool { return r.Scheme == "tcp" && !Loopback(r.Host) }

// Loopback reports whether a host is a loopback address.
func Loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// OpenListener reports whether a manager lets other machines connect to the switch's
// database without encryption: ptcp:PORT or ptcp:PORT:HOST.
func OpenListener(manager string) bool {
	at, listens := strings.CutPrefix(manager, "ptcp:")
	_, host, _ := strings.Cut(at, ":")
	return listens && !Loopback(strings.Trim(host, "[]"))
}

// Southbound returns the servers of OVN's southbound database in the settings of a
// switch. The key ovn-remote-SYSTEM_ID applies to a single chassis.
func Southbound(settings map[string]string) (all []Remote) {
	all = Parse(settings["ovn-remote"])
	if id := settings["system-id"]; id != "" {
		all = append(all, Parse(settings["ovn-remote-"+id])...)
	}
	return all
}
