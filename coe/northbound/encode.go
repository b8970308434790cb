package northbound

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strconv"

	"github.com/coe-bridge/coe-bridge/coe"
)

// AppendPod appends the entry of pod:coe/pods for p, as far as the model allows: it has one
// address per interface, and neither NodeName nor NoNetwork.
func AppendPod(raw []byte, p *coe.Pod) []byte {
	o := object{append(raw, '{')}
	o.text("uid", p.UID)
	o.text("name", p.Name)
	o.address("host-ip-address", p.HostIP)
	o.text("network-NS", p.Namespace)
	o.text("port-mac-address", p.MAC)
	for n, i := range p.Interfaces {
		o.beginEntry("interface", n)
		o.text("uid", i.UID)
		o.address("ip-address", first(i.Addresses))
		o.text("network-type", i.NetworkType)
		o.number("segmentation-id", uint64(i.SegmentationID))
		o.endEntry(n, len(p.Interfaces))
	}
	appendSet(&o, "coe-profiles:security-profiles", slices.Collect(p.Labels.Profiles()), appendString)
	return append(o.raw, '}')
}

// AppendService appends the entry of service:service-information/services for s, as far as
// the model allows: it has one cluster address (none if headless), no protocols and no
// affinity. All other addresses are external-ip-address.
func AppendService(raw []byte, s *coe.Service) []byte {
	o := object{append(raw, '{')}
	o.text("uid", s.UID)
	o.text("name", s.Name)
	o.address("cluster-ip-address", first(s.ClusterIPs))
	o.text("network-NS", s.Namespace)
	appendSet(&o, "external-ip-address", s.ExternalIPs, appendAddress)
	for n, p := range s.Ports {
		o.beginEntry("service-ports", n)
		o.text("name", p.Name)
		o.number("port", uint64(p.Port))
		o.text("target-port", p.TargetPort)
		o.number("node-port", uint64(p.NodePort))
		o.endEntry(n, len(s.Ports))
	}
	appendSet(&o, "endpoints", s.PodEndpoints, appendString)
	return append(o.raw, '}')
}

// AppendEndpoints appends the entry of service:endpoints-info/endpoints for e, as far as the
// model allows: it has neither terminating addresses nor protocols.
func AppendEndpoints(raw []byte, e *coe.Endpoints) []byte {
	o := object{append(raw, '{')}
	o.text("uid", e.UID)
	o.text("name", e.Name)
	o.text("network-NS", e.Namespace)
	for n, a := range e.Addresses {
		o.beginEntry("endpoint-addresses", n)
		o.address("ip-address", a)
		o.endEntry(n, len(e.Addresses))
	}
	for n, p := range e.Ports {
		o.beginEntry("endpoint-ports", n)
		o.text("name", p.Name)
		o.number("port", uint64(p.Port))
		o.endEntry(n, len(e.Ports))
	}
	return append(o.raw, '}')
}

// AppendNode appends the entry of k8s-node:k8s-nodes-info/k8s-nodes for n, as far as the
// model allows: it has one pod-cidr.
func AppendNode(raw []byte, n *coe.Node) []byte {
	o := object{append(raw, '{')}
	o.text("uid", n.UID)
	o.text("host-name", n.HostName)
	o.address("external-ip-address", n.ExternalIP)
	o.address("internal-ip-address", n.InternalIP)
	if len(n.PodCIDRs) > 0 {
		o.text("pod-cidr", n.PodCIDRs[0].String())
	}
	return append(o.raw, '}')
}

func first(addresses []netip.Addr) netip.Addr {
	if len(addresses) == 0 {
		return netip.Addr{}
	}
	return addresses[0]
}

// object is a JSON object in progress. It omits zero values.
type object struct{ raw []byte }

func (o *object) member(name string) {
	if o.raw[len(o.raw)-1] != '{' {
		o.raw = append(o.raw, ',')
	}
	o.raw = append(o.raw, '"')
	o.raw = append(o.raw, name...)
	o.raw = append(o.raw, `":`...)
}

func (o *object) text(name, value string) {
	if value != "" {
		o.member(name)
		o.raw = appendString(o.raw, value)
	}
}

func (o *object) number(name string, n uint64) {
	if n != 0 {
		o.member(name)
		o.raw = strconv.AppendUint(o.raw, n, 10)
	}
}

func (o *object) address(name string, a netip.Addr) {
	if a.IsValid() {
		o.member(name)
		o.raw = appendAddress(o.raw, a)
	}
}

// beginEntry starts entry n of a list.
func (o *object) beginEntry(list string, n int) {
	if n == 0 {
		o.member(list)
	}
	o.raw = append(o.raw, "[,"[min(n, 1)], '{')
}

// endEntry ends entry n of a list with of entries.
func (o *object) endEntry(n, of int) {
	o.raw = append(o.raw, '}')
	if n == of-1 {
		o.raw = append(o.raw, ']')
	}
}

// appendSet appends a leaf-list without duplicates.
func appendSet[T comparable](o *object, name string, values []T, write func([]byte, T) []byte) {
	for i, value := range values {
		if slices.Contains(values[:i], value) {
			continue
		}
		if i == 0 {
			o.member(name)
		}
		o.raw = write(append(o.raw, "[,"[min(i, 1)]), value)
	}
	if len(values) > 0 {
		o.raw = append(o.raw, ']')
	}
}

func appendAddress(raw []byte, a netip.Addr) []byte {
	return append(a.AppendTo(append(raw, '"')), '"')
}

// plain marks the characters that need no escape in a JSON string.
var plain = func() (plain [256]bool) {
	for c := byte(' '); c <= '~'; c++ {
		plain[c] = c != '"' && c != '\\'
	}
	return plain
}()

// appendString appends a JSON string, fast if it needs no escapes.
func appendString(raw []byte, text string) []byte {
	for i := range len(text) {
		if !plain[text[i]] {
			quoted, _ := json.Marshal(text) // strings always encode
			return append(raw, quoted...)
		}
	}
	raw = append(append(raw, '"'), text...)
	return append(raw, '"')
}
