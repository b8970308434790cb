package nic

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/coe-bridge/coe-bridge/cni/links"
)

// kernel is a connection to the kernel of a network namespace.
type kernel struct {
	*netlink.Handle
	socket *nl.SocketHandle
}

// at calls f with a connection to the kernel.
func at(ns netns.NsHandle, f func(kernel) error) error {
	socket, err := nl.GetNetlinkSocketAt(ns, netns.None(), unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	defer socket.Close()
	return links.At(ns, func(h *netlink.Handle) error { return f(kernel{h, &nl.SocketHandle{Socket: socket}}) })
}

// ask sends a message of rtnetlink, and returns the answers.
func (k kernel) ask(kind, flags int, body []byte, answer uint16) ([][]byte, error) {
	r := nl.NewNetlinkRequest(kind, flags)
	r.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: k.socket}
	r.AddRawData(body)
	return r.Execute(unix.NETLINK_ROUTE, answer)
}

// link is the state of a link.
type link struct {
	name     string
	index    int // 0: the link does not exist
	up       bool
	ethernet bool
	wireless bool
	mac      string
	mtu      int
	master   string   // the kind and name of the link that it belongs to
	users    []string // links that take its packets
	objects  []Object // addresses, neighbours, routes: each needs only those before it
}

// global reports whether the link has an address that other links can use too.
func (l link) global() bool {
	for _, o := range l.objects {
		if o.global() {
			return true
		}
	}
	return false
}

// ofSwitch is the kind of the link that owns the links of the kernel datapath of Open vSwitch.
const ofSwitch = "openvswitch"

// look reads a link.
func (k kernel) look(name string) (link, error) {
	out := link{name: name}
	found, err := k.LinkByName(name)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return out, nil
	}
	if err == nil {
		err = k.lookAt(found, &out)
	}
	if err != nil {
		return out, fmt.Errorf("look at link %s: %w", name, err)
	}
	return out, nil
}

func (k kernel) lookAt(found netlink.Link, out *link) error {
	is := found.Attrs()
	if is.Name != out.name {
		return fmt.Errorf("it is another name of link %s: name that link", is.Name)
	}
	out.index, out.mtu, out.mac, out.up = is.Index, is.MTU, is.HardwareAddr.String(), is.Flags&net.FlagUp != 0
	out.ethernet = is.EncapType == "ether" && is.Flags&net.FlagLoopback == 0
	_, err := os.Stat(filepath.Join("/sys/class/net", out.name, "phy80211"))
	out.wireless = err == nil
	all, err := links.Dump(k.LinkList)
	if err != nil {
		return err
	}
	for _, l := range all {
		other := l.Attrs()
		if is.MasterIndex != 0 && other.Index == is.MasterIndex && l.Type() != ofSwitch {
			out.master = l.Type() + " " + other.Name
		}
		if takes := l.Type() == "macvlan" || l.Type() == "macvtap" || l.Type() == "ipvlan"; takes && other.ParentIndex == is.Index {
			out.users = append(out.users, other.Name)
		}
	}
	out.objects, err = k.objects(*out)
	return err
}

// objects lists the objects of a link that can move.
func (k kernel) objects(of link) (all []Object, err error) {
	var behind []Object
	for _, kind := range []Kind{Address, Neighbour, Route} {
		f := formats[kind]
		for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
			header := make([]byte, f.header)
			header[familyAt] = family
			messages, err := links.Dump(func() ([][]byte, error) { return k.ask(int(f.list), unix.NLM_F_DUMP, header, f.put) })
			if err != nil {
				return nil, fmt.Errorf("list %s objects: %w", kind, err)
			}
			for _, raw := range messages {
				o, ok := objectOf(kind, raw, of)
				switch {
				case !ok:
				case o.behind():
					behind = append(behind, o)
				default:
					all = append(all, o)
				}
			}
		}
	}
	return append(all, behind...), nil
}

// hasIPv6Beside reports whether the node has a global IPv6 address on links other than a NIC, its bridge, links of pods and
// loopback. An address in own does not count.
func (k kernel) hasIPv6Beside(nic, bridge link, own []netip.Addr) (bool, error) {
	all, err := links.Dump(k.LinkList)
	if err != nil {
		return false, fmt.Errorf("list links: %w", err)
	}
	skipped := map[int]bool{nic.index: true, bridge.index: true}
	for _, l := range all {
		is := l.Attrs()
		skipped[is.Index] = skipped[is.Index] || is.Group == links.Group || is.Flags&net.FlagLoopback != 0
	}
	addresses, err := links.Dump(func() ([]netlink.Addr, error) { return k.AddrList(nil, netlink.FAMILY_V6) })
	if err != nil {
		return false, fmt.Errorf("list the addresses of the node: %w", err)
	}
	return slices.ContainsFunc(addresses, func(a netlink.Addr) bool {
		is, _ := netip.AddrFromSlice(a.IP)
		return !skipped[a.LinkIndex] && a.Scope < unix.RT_SCOPE_LINK && !slices.Contains(own, is)
	}), nil
}

// put puts an object on a link. It is not an error if the link has it.
func (k kernel) put(o Object, l link) error {
	m, err := o.on(l)
	if err != nil {
		return err
	}
	flags := unix.NLM_F_ACK | unix.NLM_F_CREATE
	switch {
	case o.Kind == Address && m.is6() && m.flags()&unix.IFA_F_NODAD == 0:
		// The node has the address, so it is unique. A later duplicate is detected as before.
		flags |= unix.NLM_F_REPLACE
		known, err := o.on(l)
		if err != nil {
			return err
		}
		known.setFlags(m.flags() | unix.IFA_F_NODAD)
		if _, err := k.ask(int(formats[o.Kind].put), flags, known.bytes(), 0); err != nil {
			return err
		}
	case o.Kind != Route, o.replaces():
		flags |= unix.NLM_F_REPLACE
	default:
		flags |= unix.NLM_F_APPEND
	}
	_, err = k.ask(int(formats[o.Kind].put), flags, m.bytes(), 0)
	if flags&unix.NLM_F_APPEND != 0 && errors.Is(err, unix.EEXIST) {
		return nil
	}
	return err
}

// remove removes an object from a link. It is not an error if the link does not have it.
func (k kernel) remove(o Object, l link) error {
	m, err := o.off(l)
	if err != nil {
		return err
	}
	_, err = k.ask(int(formats[o.Kind].remove), unix.NLM_F_ACK, m.bytes(), 0)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// copySettings gives a link the settings of another one, such as rp_filter and accept_ra.
func copySettings(ns netns.NsHandle, settings links.Settings, from, to string) error {
	if settings == "" {
		settings = links.DefaultSettings
	}
	for _, family := range []string{"ipv4", "ipv6"} {
		folder := filepath.Join(string(settings), family, "conf", from)
		values := map[string]string{}
		err := links.Inside(ns, func() error {
			files, err := os.ReadDir(folder)
			for _, file := range files {
				text, err := os.ReadFile(filepath.Join(folder, file.Name()))
				if err == nil && file.Name() != "mtu" && writable(file) { // IPv6's own MTU follows the link's
					values[file.Name()] = strings.TrimSpace(string(text))
				}
			}
			if errors.Is(err, fs.ErrNotExist) {
				return nil // the kernel has no IPv6
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("read the settings of link %s: %w", from, err)
		}
		for name, value := range values {
			if _, err := settings.Put(ns, filepath.Join(family, "conf", to, name), value); err != nil {
				return err
			}
		}
	}
	return nil
}

func writable(file fs.DirEntry) bool {
	info, err := file.Info()
	return err == nil && info.Mode()&0o200 != 0
}
