package nic

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/coe-bridge/coe-bridge/cni/links"
)

// read reads the state of a NIC and its bridge.
func (m *Mover) read(ctx context.Context, nic, bridge string) (s state, err error) {
	if s.record, err = m.recorded(nic); err != nil {
		return s, err
	}
	s.alone = s.record != nil && s.record.Alone
	if s.bridges, err = m.cfg.Switch.Bridges(ctx); err != nil {
		return s, err
	}
	settings, err := m.cfg.Switch.Settings(ctx)
	if err != nil {
		return s, err
	}
	s.mappings = settings["ovn-bridge-mappings"]
	if is, exists := s.bridges[bridge]; exists {
		s.userspace = is.Userspace
	} else if s.userspace, err = m.cfg.Switch.UserspaceByDefault(ctx); err != nil {
		return s, err
	}
	ignored, err := ignoredNICs(m.cfg.Netns)
	if err != nil {
		return s, err
	}
	s.ignored = slices.Contains(ignored, nic)
	err = at(m.cfg.Netns, func(k kernel) (err error) {
		if s.nic, err = k.look(nic); err != nil {
			return err
		}
		s.bridge, err = k.look(bridge)
		return err
	})
	var failed [2]error
	s.nicHasIPv6, failed[0] = m.hasIPv6(s.nic)
	s.bridgeHasIPv6, failed[1] = m.hasIPv6(s.bridge)
	err = errors.Join(err, failed[0], failed[1])
	if r := s.record; err == nil && r != nil && r.sameBoot && (r.Link == 0 || r.Link != s.bridge.index) {
		s.lost = r.live(time.Now())
	}
	return s, err
}

// take takes a step. s is the state before the first step.
func (m *Mover) take(ctx context.Context, s state, step Step) error {
	nic, bridge := s.nic.name, s.bridge.name
	switch step.action {
	case begin:
		return m.write(record{
			NIC: nic, Bridge: bridge, Leaving: step.leaving, First: s.record.joinsFirst(), Alone: s.alone, Silenced: s.silenced(),
			Objects: slices.Concat(s.leftOn(s.nic), s.leftOn(s.bridge), s.lost),
		})
	case silence:
		return m.silence(s)
	case unsilence:
		_, err := m.cfg.Settings.Put(m.cfg.Netns, disableIPv6(nic), "0")
		return err
	case addBridge:
		return m.cfg.Switch.AddNICBridge(ctx, bridge, nic, s.nic.mac, s.userspace)
	case addPort:
		return m.cfg.Switch.AddNIC(ctx, bridge, nic)
	case removePort:
		return m.cfg.Switch.DeleteNIC(ctx, bridge, nic)
	case removeBridge:
		return m.cfg.Switch.DeleteNICBridge(ctx, bridge, nic)
	case setLink:
		return m.configure(s)
	case ignore:
		return setIgnored(m.cfg.Netns, nic, true)
	case heed:
		return setIgnored(m.cfg.Netns, nic, false)
	case forget:
		return m.forget(nic)
	}
	return at(m.cfg.Netns, func(k kernel) error { return m.change(k, s, step) })
}

// configure gives the bridge's link the settings of the NIC.
func (m *Mover) configure(s state) error {
	if err := copySettings(m.cfg.Netns, m.cfg.Settings, s.nic.name, s.bridge.name); err != nil {
		return err
	}
	if s.userspace {
		if err := links.SoftwareChecksums(m.cfg.Netns, s.bridge.name); err != nil {
			return err
		}
	}
	return m.filter(s.bridge.name, loose)
}

// loose is the value of rp_filter that takes packets from any link with a route to their source. It is in force
// until the routes have moved: the strict value would drop all packets that arrive at the bridge.
const loose = "2"

// disableIPv6 is the setting that turns IPv6 off on a link.
func disableIPv6(link string) string { return filepath.Join("ipv6/conf", link, "disable_ipv6") }

// hasIPv6 reports whether IPv6 is on for a link that exists.
func (m *Mover) hasIPv6(l link) (bool, error) {
	if l.index == 0 {
		return false, nil
	}
	value, err := m.setting(disableIPv6(l.name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // the kernel has no IPv6
	}
	return value == "0", err
}

// silence turns IPv6 off on the NIC and the bridge. The kernel removes the addresses that routers have announced, and takes no
// new ones.
func (m *Mover) silence(s state) error {
	for _, l := range []link{s.nic, s.bridge} {
		on, err := m.hasIPv6(l)
		if err != nil {
			return err
		}
		if !on {
			continue
		}
		if _, err := m.cfg.Settings.Put(m.cfg.Netns, disableIPv6(l.name), "1"); err != nil {
			return err
		}
	}
	return nil
}

// filter sets rp_filter of a link.
func (m *Mover) filter(link, value string) error {
	_, err := m.cfg.Settings.Put(m.cfg.Netns, reversePath(link), value)
	return err
}

// restoreFilter gives the bridge rp_filter of the NIC, after configure.
func (m *Mover) restoreFilter(s state) error {
	if !s.fresh() {
		return nil
	}
	value, err := m.setting(reversePath(s.nic.name))
	if err != nil {
		return err
	}
	return m.filter(s.bridge.name, value)
}

// setting reads a setting of the node.
func (m *Mover) setting(name string) (value string, err error) {
	settings := cmp.Or(m.cfg.Settings, links.DefaultSettings)
	err = links.Inside(m.cfg.Netns, func() error {
		text, err := os.ReadFile(filepath.Join(string(settings), name))
		value = strings.TrimSpace(string(text))
		return err
	})
	return value, err
}

// reversePath is the setting rp_filter of a link.
func reversePath(link string) string { return filepath.Join("ipv4/conf", link, "rp_filter") }

// change takes a step that changes a link.
func (m *Mover) change(k kernel, s state, step Step) error {
	found, err := k.LinkByName(step.link)
	if err != nil && step.link == s.bridge.name {
		err = fmt.Errorf("%w: check that ovs-vswitchd runs, which creates it", err)
	}
	if err != nil {
		return fmt.Errorf("find link %s: %w", step.link, err)
	}
	on := link{name: step.link, index: found.Attrs().Index}
	switch step.action {
	case setUp:
		return k.LinkSetUp(found)
	case setMTU:
		return k.LinkSetMTU(found, s.nic.mtu)
	case putObject:
		return k.put(step.object, on)
	case removeObject:
		return k.remove(step.object, on)
	case settle:
		if err := m.restoreFilter(s); err != nil {
			return err
		}
		if on.objects, err = k.objects(on); err != nil {
			return err
		}
		return m.write(record{NIC: s.nic.name, Bridge: on.name, Link: on.index, Alone: s.alone, Silenced: s.silenced(), Objects: on.objects})
	}
	return fmt.Errorf("unknown action %q", step.action)
}
