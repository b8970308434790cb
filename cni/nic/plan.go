package nic

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/coe-bridge/coe-bridge/cni/ovs"
)

// Step is a step of a move. It may be repeated.
type Step struct {
	action action
	link   string // the link that it changes
	object Object // of putObject and removeObject
	detail string // for people
	// leaving is the direction of begin.
	leaving bool
}

type action string

// The actions. The first and the last of a move write the record.
const (
	begin        action = "record"
	addBridge    action = "add bridge"
	setLink      action = "configure"
	setUp        action = "set up"
	addPort      action = "add port"
	setMTU       action = "set MTU of"
	putObject    action = "add"
	removeObject action = "remove"
	silence      action = "turn IPv6 off on"
	unsilence    action = "turn IPv6 on again on"
	ignore       action = "ignore packets of"
	heed         action = "process packets of"
	removePort   action = "remove port"
	removeBridge action = "remove bridge"
	settle       action = "record the state of"
	forget       action = "remove the record of"
)

func (s Step) String() string {
	switch s.action {
	case putObject:
		return fmt.Sprintf("%s %s to %s", s.action, s.object, s.link)
	case removeObject:
		return fmt.Sprintf("%s %s from %s", s.action, s.object, s.link)
	}
	return strings.TrimRight(fmt.Sprintf("%s %s %s", s.action, s.link, s.detail), " ")
}

// state is what the kernel, the switch and the disk know about a NIC and its bridge.
type state struct {
	nic, bridge link
	bridges     map[string]ovs.Bridge
	mappings    string // of OVN, from its networks to bridges
	userspace   bool   // the datapath of the bridge
	ignored     bool   // the kernel ignores packets of the NIC
	record      *record
	lost        []Object // what the bridge's link has lost with its removal, at this boot
	alone       bool     // the NIC does not serve the node, so NIC and bridge must not have IPv6

	nicHasIPv6, bridgeHasIPv6 bool
}

// made reports whether the bridge exists and is the NIC's.
func (s state) made() bool {
	is, exists := s.bridges[s.bridge.name]
	return exists && is.NIC == s.nic.name
}

// on returns the bridge that has the NIC as a port; empty if there is none.
func (s state) on() string {
	for name, b := range s.bridges {
		if _, is := b.Interfaces[s.nic.name]; is {
			return name
		}
	}
	return ""
}

// silenced reports whether the NIC has IPv6 turned off by the mover after the next silence.
func (s state) silenced() bool { return s.record.silenced() || s.alone && s.nicHasIPv6 }

// works reports whether the bridge has the NIC as a port that the switch has opened.
func (s state) works() bool { return s.bridges[s.bridge.name].Interfaces[s.nic.name] }

// fresh reports whether the bridge's link has not been configured yet.
func (s state) fresh() bool {
	return s.bridge.index == 0 || s.record == nil || s.record.Link != s.bridge.index || !s.record.sameBoot
}

// moving returns the objects that move to a link. Objects that nobody has any more come from the record.
func (s state) moving(from link) []Object {
	from.objects = s.leftOn(from)
	if len(s.lost) > 0 && !s.nic.global() && !s.bridge.global() {
		return append(slices.Clone(from.objects), s.lost...)
	}
	return from.objects
}

// checkJoin returns the reason that the NIC cannot join the bridge.
func checkJoin(s state) error {
	if err := s.checkNIC(); err != nil {
		return err
	}
	is, exists := s.bridges[s.bridge.name]
	switch on := s.on(); {
	case on != "" && on != s.bridge.name:
		return fmt.Errorf("NIC %s is a port of bridge %s: remove it there first", s.nic.name, on)
	case exists && is.NIC != s.nic.name:
		return fmt.Errorf("the switch has a bridge %s that coe-bridge has not created: move its addresses back and remove it, then try again", s.bridge.name)
	case exists && s.bridge.index == 0:
		return fmt.Errorf("the node has no link of bridge %s: check that ovs-vswitchd runs, which creates it", s.bridge.name)
	case !exists && s.bridge.index != 0 && s.record == nil:
		return fmt.Errorf("the node has a link %s, which is not a bridge of the switch: remove or rename it", s.bridge.name)
	}
	for _, o := range s.nic.objects {
		if _, err := o.on(s.bridge); err != nil {
			return err
		}
	}
	return nil
}

// checkNIC returns the reason that the NIC cannot be a port of a bridge.
func (s state) checkNIC() error {
	n := s.nic
	_, isBridge := s.bridges[n.name]
	switch {
	case n.index == 0:
		return errors.New("the node has no such link")
	case isBridge:
		return fmt.Errorf("%s is a bridge of the switch, not a NIC", n.name)
	case !n.ethernet:
		return fmt.Errorf("%s is not an Ethernet link", n.name)
	case n.wireless:
		return fmt.Errorf("%s is wireless: an access point accepts only the MAC address of the NIC, so a bridge does not work", n.name)
	case n.master != "":
		return fmt.Errorf("%s belongs to %s: name that link if it has the addresses, or take %s out of it", n.name, n.master, n.name)
	case len(n.users) > 0:
		return fmt.Errorf("%s uses %s, and cannot use a port of a bridge: remove it first", strings.Join(n.users, ", "), n.name)
	case !n.up:
		return fmt.Errorf("%s is down: set it up (ip link set %s up)", n.name, n.name)
	case len(s.bridge.name) >= unix.IFNAMSIZ:
		return fmt.Errorf("the name of its bridge, %s, is longer than the kernel's limit of %d characters: rename the NIC", s.bridge.name, unix.IFNAMSIZ-1)
	}
	return nil
}

// joinSteps returns the steps that let the NIC join the bridge; none if it has joined.
//
// The bridge gets the addresses first, so both links have them for a moment. Then the NIC becomes a
// port: from now on packets arrive at the bridge. Then the routes move, and last the addresses leave the
// NIC. A route is added before its former one is removed.
func joinSteps(s state) []Step {
	objects := s.moving(s.nic)
	nic, bridge := s.nic.name, s.bridge.name
	var steps []Step
	add := func(is bool, a action, link, detail string) {
		if is {
			steps = append(steps, Step{action: a, link: link, detail: detail})
		}
	}
	add(s.alone && (s.nicHasIPv6 || s.bridgeHasIPv6), silence, nic, "")
	add(!s.made(), addBridge, bridge, "with MAC address "+s.nic.mac)
	add(s.fresh(), setLink, bridge, "as "+nic)
	put, rest := split(objects, bridge)
	steps = append(steps, put...)
	add(!s.bridge.up, setUp, bridge, "")
	add(!s.works(), addPort, nic, "to bridge "+bridge)
	add(s.userspace && !s.ignored, ignore, nic, "which the userspace datapath reads")
	add(s.bridge.mtu != s.nic.mtu, setMTU, bridge, fmt.Sprintf("to %d", s.nic.mtu))
	steps = slices.Concat(steps, rest, removals(s.stale(), bridge), removals(s.leftOn(s.nic), nic))
	if len(steps) == 0 && s.record != nil && !s.record.Leaving && !s.fresh() && s.record.Alone == s.alone {
		return nil
	}
	steps = slices.Insert(steps, 0, Step{action: begin, link: nic, detail: "joins bridge " + bridge})
	return append(steps, Step{action: settle, link: bridge})
}

// leftOn returns the objects that a link has after silence.
func (s state) leftOn(l link) []Object {
	if s.alone {
		return slices.DeleteFunc(slices.Clone(l.objects), Object.is6)
	}
	return l.objects
}

// stale returns the routes of the bridge that routes of the NIC replace. A network manager that changes a
// gateway removes the former route from the NIC, where it is not any more.
func (s state) stale() (all []Object) {
	if s.fresh() {
		return nil // the same routes are on both links
	}
	for _, old := range s.bridge.objects {
		if slices.ContainsFunc(s.nic.objects, old.replacedBy) {
			all = append(all, old)
		}
	}
	return all
}

// resumeSteps is joinSteps for a NIC that has joined at an earlier time. After a boot it waits until the
// network manager has put addresses on the NIC. Until then the NIC is not a port of the bridge, so that it
// works by itself.
func resumeSteps(s state) []Step {
	waits := s.record != nil && !s.record.sameBoot && s.record.global() && !s.nic.global() && !s.bridge.global()
	switch {
	case waits && s.on() == s.bridge.name:
		return []Step{{action: removePort, link: s.nic.name, detail: "from bridge " + s.bridge.name}}
	case waits:
		return nil
	}
	return joinSteps(s)
}

// split returns the steps that put objects on a link: first addresses, then what needs a link that
// works.
func split(objects []Object, link string) (addresses, rest []Step) {
	for _, o := range objects {
		step := Step{action: putObject, link: link, object: o}
		if o.Kind == Address {
			addresses = append(addresses, step)
		} else {
			rest = append(rest, step)
		}
	}
	return addresses, rest
}

// removals returns the steps that remove objects from a link, in the reverse order.
func removals(objects []Object, link string) (steps []Step) {
	for _, o := range slices.Backward(objects) {
		if !o.replaces() {
			steps = append(steps, Step{action: removeObject, link: link, object: o})
		}
	}
	return steps
}

// nicOf returns the NIC that a bridge was created for.
func nicOf(bridge string, bridges map[string]ovs.Bridge) (string, error) {
	is, exists := bridges[bridge]
	nic, named := strings.CutPrefix(bridge, prefix)
	switch {
	case exists && is.NIC == "":
		return "", fmt.Errorf("bridge %s was not created by coe-bridge gateway nics-to-bridge", bridge)
	case exists:
		return is.NIC, nil
	case !named || nic == "":
		return "", fmt.Errorf("the switch has no bridge %s", bridge)
	}
	return nic, nil // it has left the bridge, if the node has it
}

// checkLeave returns the reason that the NIC cannot leave the bridge.
func checkLeave(s state) error {
	if s.nic.index == 0 {
		return fmt.Errorf("the node has no link %s", s.nic.name)
	}
	return checkRemovable(s)
}

// checkAbandon returns the reason that the bridge of a lost NIC cannot be removed.
func checkAbandon(s state) error {
	if s.nic.index != 0 {
		return fmt.Errorf("the node has link %s: let it leave the bridge", s.nic.name)
	}
	return checkRemovable(s)
}

// checkRemovable returns the reason that the bridge cannot be removed.
func checkRemovable(s state) error {
	is, exists := s.bridges[s.bridge.name]
	if !exists {
		return nil
	}
	if is.NIC != s.nic.name {
		return fmt.Errorf("bridge %s was not created by coe-bridge gateway nics-to-bridge", s.bridge.name)
	}
	for mapping := range strings.SplitSeq(s.mappings, ",") {
		if network, bridge, _ := strings.Cut(mapping, ":"); bridge == s.bridge.name {
			return fmt.Errorf("OVN's network %s uses bridge %s (ovn-bridge-mappings): run coe-bridge gateway remove if this node is its gateway, or remove this mapping", network, s.bridge.name)
		}
	}
	for _, port := range is.Ports {
		if port != s.nic.name && port != s.bridge.name {
			return fmt.Errorf("bridge %s has other ports, %s among them: remove them first", s.bridge.name, port)
		}
	}
	return nil
}

// abandonSteps returns the steps that remove the bridge of a lost NIC, with the addresses and routes that it has.
func abandonSteps(s state) (steps []Step) {
	if s.ignored {
		steps = append(steps, Step{action: heed, link: s.nic.name})
	}
	if s.made() {
		steps = append(steps, Step{action: removeBridge, link: s.bridge.name})
	}
	if s.record != nil {
		steps = append(steps, Step{action: forget, link: s.nic.name})
	}
	return steps
}

// leaveSteps returns the steps that let the NIC leave the bridge; none if it has left. The NIC gets
// addresses and routes before the bridge is removed, which removes them there.
func leaveSteps(s state) []Step {
	if !s.made() && s.record == nil {
		return nil
	}
	nic, bridge := s.nic.name, s.bridge.name
	steps := []Step{{action: begin, link: nic, detail: "leaves bridge " + bridge, leaving: true}}
	if !s.nic.up {
		steps = append(steps, Step{action: setUp, link: nic})
	}
	if s.record != nil && s.record.Silenced {
		steps = append(steps, Step{action: unsilence, link: nic})
	}
	put, rest := split(s.moving(s.bridge), nic)
	steps = slices.Concat(steps, put, rest)
	if s.ignored {
		steps = append(steps, Step{action: heed, link: nic})
	}
	if s.made() {
		steps = append(steps, Step{action: removeBridge, link: bridge})
	}
	return append(steps, Step{action: forget, link: nic})
}
