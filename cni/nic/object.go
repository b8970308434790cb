package nic

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Kind is the kind of an Object.
type Kind string

// The kinds of objects.
const (
	Address   Kind = "address"
	Neighbour Kind = "neighbour"
	Route     Kind = "route"
)

// format is how rtnetlink lists and writes objects of a kind.
type format struct {
	list, put, remove uint16
	header            int // its length
}

var formats = map[Kind]format{
	Address:   {unix.RTM_GETADDR, unix.RTM_NEWADDR, unix.RTM_DELADDR, unix.SizeofIfAddrmsg},
	Neighbour: {unix.RTM_GETNEIGH, unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH, unix.SizeofNdMsg},
	Route:     {unix.RTM_GETROUTE, unix.RTM_NEWROUTE, unix.RTM_DELROUTE, unix.SizeofRtMsg},
}

// Object is an address, a permanent neighbour or a route of a link. It is the kernel's own message, so
// that it keeps attributes that this package does not know. The message is without the link: it has the
// index 0, and a placeholder instead of the link's name.
type Object struct {
	Kind    Kind   `json:"kind"`
	Text    string `json:"text"` // for people
	Message []byte `json:"message"`
}

func (o Object) String() string { return o.Text }

// placeholder stands for the name of the link in the label of an address. No link has this name.
const placeholder = "%"

// Attributes of routes and addresses that package unix does not have.
const (
	addressFlags   = 0x8  // IFA_FLAGS
	routeExpires   = 0x17 // RTA_EXPIRES
	routeNexthopID = 0x1e // RTA_NH_ID
)

// The positions of fields in the headers of the three messages.
const (
	familyAt = 0

	addressLengthAt, addressFlagsAt, addressScopeAt, addressIndexAt = 1, 2, 3, 4

	neighbourIndexAt, neighbourStateAt = 4, 8

	routeLengthAt, routeTableAt, routeProtocolAt, routeScopeAt, routeTypeAt, routeFlagsAt = 1, 4, 5, 6, 7, 8
)

var native = binary.NativeEndian

// message is a message of rtnetlink in parts.
type message struct {
	header     []byte
	attributes []syscall.NetlinkRouteAttr
}

var errShort = errors.New("the message is too short")

func parse(kind Kind, raw []byte) (message, error) {
	length := formats[kind].header
	if length == 0 || len(raw) < length {
		return message{}, errShort
	}
	attributes, err := nl.ParseRouteAttr(raw[length:])
	if err != nil {
		return message{}, err
	}
	return message{slices.Clone(raw[:length]), attributes}, nil
}

func (m *message) bytes() []byte {
	out := slices.Clone(m.header)
	for _, a := range m.attributes {
		out = append(out, nl.NewRtAttr(int(a.Attr.Type), a.Value).Serialize()...)
	}
	return out
}

// value returns the value of an attribute, or nil.
func (m *message) value(kind uint16) []byte {
	for _, a := range m.attributes {
		if a.Attr.Type == kind {
			return a.Value
		}
	}
	return nil
}

// number returns the value of an attribute with a number; 0 if it has none.
func (m *message) number(kind uint16) uint32 {
	if v := m.value(kind); len(v) == 4 {
		return native.Uint32(v)
	}
	return 0
}

// set sets an attribute.
func (m *message) set(kind uint16, value []byte) {
	for i, a := range m.attributes {
		if a.Attr.Type == kind {
			m.attributes[i].Value = value
			return
		}
	}
	m.attributes = append(m.attributes, syscall.NetlinkRouteAttr{Attr: syscall.RtAttr{Type: kind}, Value: value})
}

func (m *message) unset(kinds ...uint16) {
	m.attributes = slices.DeleteFunc(m.attributes, func(a syscall.NetlinkRouteAttr) bool { return slices.Contains(kinds, a.Attr.Type) })
}

func number(n uint32) []byte { return native.AppendUint32(nil, n) }

// is4 and is6 report the family.
func (m *message) is4() bool { return m.header[familyAt] == unix.AF_INET }
func (m *message) is6() bool { return m.header[familyAt] == unix.AF_INET6 }

// relink replaces the link with an index by another one. It reports whether the message had that link.
func (m *message) relink(kind Kind, from, to int) (had bool) {
	at := addressIndexAt
	switch kind {
	case Route:
		return m.relinkRoute(from, to)
	case Neighbour:
		at = neighbourIndexAt
	}
	if int(native.Uint32(m.header[at:])) != from {
		return false
	}
	native.PutUint32(m.header[at:], uint32(to))
	return true
}

func (m *message) relinkRoute(from, to int) (had bool) {
	if v := m.value(unix.RTA_OIF); len(v) == 4 && int(native.Uint32(v)) == from {
		m.set(unix.RTA_OIF, number(uint32(to)))
		had = true
	}
	hops := slices.Clone(m.value(unix.RTA_MULTIPATH))
	eachHop(hops, func(hop []byte) {
		if int(native.Uint32(hop[hopIndexAt:])) == from {
			native.PutUint32(hop[hopIndexAt:], uint32(to))
			had = true
		}
	})
	if hops != nil {
		m.set(unix.RTA_MULTIPATH, hops)
	}
	return had
}

// The positions of fields in a hop of a route with several, a struct rtnexthop.
const hopLengthAt, hopFlagsAt, hopIndexAt = 0, 2, 4

// eachHop calls f for each hop of a route with several.
func eachHop(hops []byte, f func(hop []byte)) {
	for len(hops) >= unix.SizeofRtNexthop {
		length := int(native.Uint16(hops[hopLengthAt:]))
		if length < unix.SizeofRtNexthop || length > len(hops) {
			return
		}
		f(hops[:length])
		hops = hops[min((length+3)&^3, len(hops)):]
	}
}

// objectOf returns the object that the kernel has described, without its link. ok is false if it is an
// object of another link, or one that does not move: those that the kernel makes by itself, learned neighbours,
// and addresses that are not usable.
func objectOf(kind Kind, raw []byte, of link) (o Object, ok bool) {
	m, err := parse(kind, raw)
	if err != nil || !m.is4() && !m.is6() || !m.relink(kind, of.index, 0) {
		return o, false
	}
	switch kind {
	case Address:
		ok = m.cleanAddress(of.name)
	case Neighbour:
		ok = native.Uint16(m.header[neighbourStateAt:])&unix.NUD_PERMANENT != 0
		m.unset(unix.NDA_CACHEINFO, unix.NDA_PROBES)
	case Route:
		ok = m.cleanRoute()
	}
	return Object{Kind: kind, Text: m.text(kind), Message: m.bytes()}, ok
}

// The positions of fields in the times of an address, a struct ifa_cacheinfo.
const preferredAt, validAt, updatedAt = 0, 4, 8

// forever is an unlimited lifetime.
const forever = ^uint32(0)

// cleanAddress removes what depends on the link. It reports whether the address can move.
func (m *message) cleanAddress(name string) bool {
	if label, of := strings.CutPrefix(terminated(m.value(unix.IFA_LABEL)), name); of {
		m.set(unix.IFA_LABEL, append([]byte(placeholder+label), 0))
	}
	if times := slices.Clone(m.value(unix.IFA_CACHEINFO)); len(times) > updatedAt {
		if native.Uint32(times[validAt:]) == 0 {
			return false
		}
		clear(times[updatedAt:])
		m.set(unix.IFA_CACHEINFO, times)
	}
	return m.flags()&unix.IFA_F_DADFAILED == 0
}

// flags returns the flags of an address.
func (m *message) flags() uint32 { return m.number(addressFlags) | uint32(m.header[addressFlagsAt]) }

// setFlags sets the flags of an address.
func (m *message) setFlags(flags uint32) {
	m.header[addressFlagsAt] = byte(flags)
	m.set(addressFlags, number(flags))
}

// terminated returns a string of the kernel, which ends with a zero.
func terminated(value []byte) string { return strings.TrimRight(string(value), "\x00") }

// The position of the time to live of a route in a struct rta_cacheinfo, and its unit.
const (
	expiresAt    = 8
	ticksASecond = 100 // USER_HZ
)

// cleanRoute removes the state of the route, and reports whether it can move. The kernel makes the
// routes of the table local by itself, and copies of routes in caches.
func (m *message) cleanRoute() bool {
	own := m.table() == unix.RT_TABLE_LOCAL && m.header[routeProtocolAt] == unix.RTPROT_KERNEL
	cached := native.Uint32(m.header[routeFlagsAt:])&unix.RTM_F_CLONED != 0
	native.PutUint32(m.header[routeFlagsAt:], native.Uint32(m.header[routeFlagsAt:])&unix.RTNH_F_ONLINK)
	if hops := slices.Clone(m.value(unix.RTA_MULTIPATH)); hops != nil {
		eachHop(hops, func(hop []byte) { hop[hopFlagsAt] &= unix.RTNH_F_ONLINK })
		m.set(unix.RTA_MULTIPATH, hops)
	}
	if state := m.value(unix.RTA_CACHEINFO); len(state) > expiresAt+4 {
		if ticks := int32(native.Uint32(state[expiresAt:])); ticks > 0 {
			m.set(routeExpires, number(uint32(ticks)/ticksASecond+1))
		}
	}
	m.unset(unix.RTA_CACHEINFO)
	return !own && !cached
}

func (m *message) table() uint32 {
	if t := m.number(unix.RTA_TABLE); t != 0 {
		return t
	}
	return uint32(m.header[routeTableAt])
}

// on returns the message that puts the object on a link.
func (o Object) on(l link) (message, error) {
	m, err := parse(o.Kind, o.Message)
	if err != nil {
		return m, fmt.Errorf("read %s: %w", o.Kind, err)
	}
	m.relink(o.Kind, 0, l.index)
	if rest, of := strings.CutPrefix(terminated(m.value(unix.IFA_LABEL)), placeholder); o.Kind == Address && of {
		label := l.name + rest
		if len(label) >= unix.IFNAMSIZ {
			return m, fmt.Errorf("%s: its label would be %s, which is longer than the kernel's limit of %d characters: remove the label", o, label, unix.IFNAMSIZ-1)
		}
		m.set(unix.IFA_LABEL, append([]byte(label), 0))
	}
	if o.Kind == Route {
		m.unset(routeNexthopID) // the kernel has listed the hops too, and takes one of both
		m.uniqueHops()
	}
	return m, nil
}

// uniqueHops removes hops that are equal. If a move of an IPv6 route was interrupted, the kernel has one route with a
// hop on each link. A route with one hop is written without a list.
func (m *message) uniqueHops() {
	var (
		unique [][]byte
		all    int
	)
	eachHop(m.value(unix.RTA_MULTIPATH), func(hop []byte) {
		all++
		if !slices.ContainsFunc(unique, func(other []byte) bool { return bytes.Equal(hop[hopIndexAt:], other[hopIndexAt:]) }) {
			unique = append(unique, hop)
		}
	})
	switch {
	case len(unique) == all:
	case len(unique) == 1:
		m.unset(unix.RTA_MULTIPATH)
		m.set(unix.RTA_OIF, unique[0][hopIndexAt:unix.SizeofRtNexthop])
		attributes, err := nl.ParseRouteAttr(unique[0][unix.SizeofRtNexthop:])
		if err == nil {
			m.attributes = append(m.attributes, attributes...)
		}
	default:
		m.set(unix.RTA_MULTIPATH, slices.Concat(unique...))
	}
}

// off returns the message that removes the object from a link.
func (o Object) off(l link) (message, error) {
	m, err := o.on(l)
	if err != nil || o.Kind != Route {
		return m, err
	}
	m.unset(routeExpires)
	whole, err := parse(Route, o.Message)
	if id := whole.value(routeNexthopID); id != nil {
		m.set(routeNexthopID, id)
		m.unset(unix.RTA_OIF, unix.RTA_GATEWAY, unix.RTA_VIA, unix.RTA_MULTIPATH)
	}
	return m, err
}

// replaces reports whether putting the object replaces the one on the other link: an IPv6 route with
// several hops can only be replaced as a whole.
func (o Object) replaces() bool {
	m, err := parse(o.Kind, o.Message)
	return err == nil && o.Kind == Route && m.is6() && m.value(unix.RTA_MULTIPATH) != nil
}

// replacedBy reports whether a later route of the same program replaces this one: the same route with another
// gateway.
func (o Object) replacedBy(later Object) bool {
	if o.Kind != Route || later.Kind != Route {
		return false
	}
	a, errA := parse(Route, o.Message)
	b, errB := parse(Route, later.Message)
	former, gateway := a.value(unix.RTA_GATEWAY), b.value(unix.RTA_GATEWAY)
	return errA == nil && errB == nil && former != nil && gateway != nil && !bytes.Equal(former, gateway) &&
		bytes.Equal(a.header[:routeScopeAt], b.header[:routeScopeAt]) && a.header[routeTypeAt] == b.header[routeTypeAt] && a.table() == b.table() &&
		a.number(unix.RTA_PRIORITY) == b.number(unix.RTA_PRIORITY) && bytes.Equal(a.value(unix.RTA_DST), b.value(unix.RTA_DST))
}

// behind reports whether a route needs another route to its gateway.
func (o Object) behind() bool {
	m, err := parse(o.Kind, o.Message)
	return err == nil && o.Kind == Route && (m.value(unix.RTA_GATEWAY) != nil || m.value(unix.RTA_VIA) != nil || m.value(unix.RTA_MULTIPATH) != nil)
}

// global reports whether the object is an address that other links can use too.
func (o Object) global() bool {
	m, err := parse(o.Kind, o.Message)
	return err == nil && o.Kind == Address && m.header[addressScopeAt] < unix.RT_SCOPE_LINK
}

// is6 reports whether the object is of IPv6.
func (o Object) is6() bool {
	m, err := parse(o.Kind, o.Message)
	return err == nil && m.is6()
}

// needed reports whether the node needs the object as an address of its own, and the reason if it is not obvious. elsewhere:
// another link has a global IPv6 address.
func (o Object) needed(internal []netip.Addr, elsewhere bool) (reason string, is bool) {
	m, err := parse(o.Kind, o.Message)
	switch {
	case err != nil || !o.global():
		return "", false
	case !m.announced():
		return "", true
	case slices.Contains(internal, m.own()):
		return ", an internal address of the node", true
	case !elsewhere:
		return ", and no other link has a global IPv6 address", true
	}
	return "", false
}

// announced reports whether the kernel has made an address because a router has announced its prefix, or a temporary one of it.
func (m *message) announced() bool {
	return m.is6() && m.flags()&(unix.IFA_F_MANAGETEMPADDR|unix.IFA_F_TEMPORARY) != 0
}

// aged returns the object after some time; ok is false if its time has ended.
func (o Object) aged(by time.Duration) (Object, bool) {
	m, err := parse(o.Kind, o.Message)
	if err != nil {
		return o, false
	}
	passed := uint32(by / time.Second)
	left := func(seconds uint32) uint32 {
		if seconds == forever {
			return forever
		}
		return seconds - min(passed, seconds)
	}
	switch times := slices.Clone(m.value(unix.IFA_CACHEINFO)); {
	case o.Kind == Address && len(times) > updatedAt:
		valid := left(native.Uint32(times[validAt:]))
		native.PutUint32(times[preferredAt:], left(native.Uint32(times[preferredAt:])))
		native.PutUint32(times[validAt:], valid)
		m.set(unix.IFA_CACHEINFO, times)
		o.Message = m.bytes()
		return o, valid > 0
	case o.Kind == Route && m.number(routeExpires) > 0:
		seconds := left(m.number(routeExpires))
		m.set(routeExpires, number(seconds))
		o.Message = m.bytes()
		return o, seconds > 0
	}
	return o, true
}

// text describes an object.
func (m *message) text(kind Kind) string {
	switch kind {
	case Address:
		return fmt.Sprintf("address %s/%d", m.own(), m.header[addressLengthAt])
	case Neighbour:
		return fmt.Sprintf("neighbour %s", address(m.value(unix.NDA_DST)))
	}
	out := "route to default"
	if to := m.value(unix.RTA_DST); to != nil {
		out = fmt.Sprintf("route to %s/%d", address(to), m.header[routeLengthAt])
	}
	if via := m.value(unix.RTA_GATEWAY); via != nil {
		out += " via " + address(via).String()
	}
	if m.value(unix.RTA_MULTIPATH) != nil {
		out += " with several hops"
	}
	if metric := m.number(unix.RTA_PRIORITY); metric != 0 {
		out += fmt.Sprintf(" metric %d", metric)
	}
	if table := m.table(); table != unix.RT_TABLE_MAIN {
		out += fmt.Sprintf(" table %d", table)
	}
	return out
}

// own returns the address of the link, of an address.
func (m *message) own() netip.Addr {
	own := m.value(unix.IFA_LOCAL)
	if own == nil {
		own = m.value(unix.IFA_ADDRESS)
	}
	return address(own)
}

func address(octets []byte) netip.Addr {
	a, _ := netip.AddrFromSlice(octets)
	return a
}
