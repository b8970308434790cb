// Package vif encodes and decodes what the external_ids of a VIF say: the pod, its attachment to a network, and its host ports. A VIF is a
// network interface of a pod in the table Interface of Open vSwitch.
//
// The package knows neither the switch, its database and its controllers, nor the interfaces of the node itself.
package vif

import (
	"net/netip"
	"strings"
)

// Port is a port of ours, as the external_ids of its interface describe it.
type Port struct {
	Name      string // of the port and its link
	Interface string // the iface-id
	PodUID    string // iface-id-ver: a port of an older pod must not claim the interface of a newer one
	MAC       string
	Addresses []netip.Addr
	// Attachment is the interface of the container runtime that the port serves.
	Attachment Attachment
	HostPorts  []HostPort
	// DefaultGateway is isDefaultGateway of the network's configuration: "true", "false", or empty if it says nothing.
	DefaultGateway string
	// Replaced is set if the port was given another OpenFlow number.
	Replaced bool
	// Unreadable are entries of host ports that another program has changed. They are of no effect.
	Unreadable []string
}

// Attachment identifies an interface for the container runtime.
type Attachment struct {
	Network   string // the name of the CNI network
	Container string // the ID of the sandbox
	IfName    string // the link's name in the pod
	Netns     string // the path of the pod's namespace
}

// Same reports whether a and b have the same container and link.
func (a Attachment) Same(b Attachment) bool {
	return a.Container == b.Container && a.IfName == b.IfName
}

// The keys of external_ids. OVN, OpenDaylight and common tools also use the first four.
const (
	KeyInterface = "iface-id"
	keyPodUID    = "iface-id-ver"
	KeyMAC       = "attached-mac"
	keyAddresses = "ip-address"
	keyContainer = "coe-container"
	keyIfName    = "coe-ifname"
	keyNetns     = "coe-netns"
	keyNetwork   = "coe-network"
	KeyHostPorts = "coe-host-ports"      // only of ports that have some
	keyDefault   = "coe-default-gateway" // only of ports whose configuration says it
	KeyReplaced  = "coe-replaced"        // only of ports that were replaced: "true"
)

// ExternalIDs returns the external_ids of the interface of a new port.
func (p Port) ExternalIDs() map[string]string {
	addresses := make([]string, len(p.Addresses))
	for i, a := range p.Addresses {
		addresses[i] = a.String()
	}
	ids := map[string]string{
		KeyInterface: p.Interface, keyPodUID: p.PodUID, KeyMAC: p.MAC, keyAddresses: strings.Join(addresses, " "),
		keyContainer: p.Attachment.Container, keyIfName: p.Attachment.IfName, keyNetns: p.Attachment.Netns, keyNetwork: p.Attachment.Network,
	}
	if len(p.HostPorts) > 0 {
		texts := make([]string, len(p.HostPorts))
		for i, h := range p.HostPorts {
			texts[i] = h.encode()
		}
		ids[KeyHostPorts] = strings.Join(texts, " ")
	}
	if p.DefaultGateway != "" {
		ids[keyDefault] = p.DefaultGateway
	}
	return ids
}

// PortOf returns the port that the external_ids of an interface describe; ok is false if it is not ours.
func PortOf(name string, ids map[string]string) (p Port, ok bool) {
	p = Port{
		Name: name, Interface: ids[KeyInterface], PodUID: ids[keyPodUID], MAC: ids[KeyMAC], DefaultGateway: ids[keyDefault], Replaced: ids[KeyReplaced] != "",
		Attachment: Attachment{Network: ids[keyNetwork], Container: ids[keyContainer], IfName: ids[keyIfName], Netns: ids[keyNetns]},
	}
	for _, text := range strings.Fields(ids[keyAddresses]) {
		if a, err := netip.ParseAddr(text); err == nil {
			p.Addresses = append(p.Addresses, a)
		}
	}
	for _, text := range strings.Fields(ids[KeyHostPorts]) {
		if h, err := decodeHostPort(text); err == nil {
			p.HostPorts = append(p.HostPorts, h)
		} else {
			p.Unreadable = append(p.Unreadable, text)
		}
	}
	return p, p.Attachment.Container != "" && p.Attachment.IfName != ""
}

// IsOf reports whether external_ids name an attachment.
func IsOf(ids map[string]string, of Attachment) bool {
	return ids[keyContainer] == of.Container && ids[keyIfName] == of.IfName
}
