package northbound

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"strings"
)

// LeafError is what is wrong with one leaf of an entry, beyond what the YANG
// modules say.
type LeafError struct {
	Leaf string // path below the entry, "name" or "service-ports/port"
	Err  error
}

// Error names the leaf and says what is wrong.
func (e *LeafError) Error() string { return e.Leaf + ": " + e.Err.Error() }

// Unwrap returns what is wrong.
func (e *LeafError) Unwrap() error { return e.Err }

// Check tells what is wrong with an entry of a list although it is valid by the
// YANG modules: a *LeafError, or nil. Entries of lists that are not read here
// are not checked.
func Check(list string, raw []byte) error {
	switch list {
	case Pods:
		return checkPod(raw)
	case Services:
		return checkService(raw)
	case EndpointsList:
		return checkEndpoints(raw)
	case Nodes:
		return checkNode(raw)
	}
	return nil
}

func checkPod(raw []byte) error {
	var p pod
	if err := json.Unmarshal(raw, &p); err != nil {
		return fmt.Errorf("check pod: %w", err)
	}
	if err := checkNames(p.Name, p.NetworkNS); err != nil {
		return err
	}
	if p.MAC == "" {
		return nil
	}
	mac, err := net.ParseMAC(p.MAC)
	if err != nil || len(mac) != 6 || mac[0]&1 != 0 {
		return &LeafError{"port-mac-address", fmt.Errorf("%q is no MAC address of one interface; want six pairs of hex digits, or none", p.MAC)}
	}
	return nil
}

func checkService(raw []byte) error {
	var s service
	if err := json.Unmarshal(raw, &s); err != nil {
		return fmt.Errorf("check service: %w", err)
	}
	if err := checkNames("", s.NetworkNS); err != nil {
		return err
	}
	for _, p := range s.Ports {
		if _, err := portNumber(p.Port); err != nil {
			return &LeafError{"service-ports/port", err}
		}
		if p.NodePort < 0 || p.NodePort > 65535 {
			return &LeafError{"service-ports/node-port", fmt.Errorf("%d is no port number; want 0..65535", p.NodePort)}
		}
	}
	return nil
}

func checkEndpoints(raw []byte) error {
	var e endpoints
	if err := json.Unmarshal(raw, &e); err != nil {
		return fmt.Errorf("check endpoints: %w", err)
	}
	if err := checkNames("", e.NetworkNS); err != nil {
		return err
	}
	for _, p := range e.Ports {
		if _, err := portNumber(p.Port); err != nil {
			return &LeafError{"endpoint-ports/port", err}
		}
	}
	return nil
}

func checkNode(raw []byte) error {
	var n node
	if err := json.Unmarshal(raw, &n); err != nil {
		return fmt.Errorf("check node: %w", err)
	}
	if n.PodCIDR == "" {
		return nil
	}
	if _, err := netip.ParsePrefix(n.PodCIDR); err != nil {
		return &LeafError{"pod-cidr", fmt.Errorf("%q is no prefix; want one like 10.11.2.0/24", n.PodCIDR)}
	}
	return nil
}

// checkNames refuses what would make the names of Netvirt objects
// ("namespace:pod-name"), or of the scopes of the status, ambiguous.
func checkNames(pod, namespace string) error {
	const reason = "%q holds a colon, which separates the parts of interface names; choose another"
	if strings.Contains(pod, ":") {
		return &LeafError{"name", fmt.Errorf(reason, pod)}
	}
	if strings.Contains(namespace, ":") {
		return &LeafError{"network-NS", fmt.Errorf(reason, namespace)}
	}
	if strings.HasPrefix(namespace, "(") {
		return &LeafError{"network-NS", fmt.Errorf("%q begins with a parenthesis, as \"(cluster)\" does, which stands for no namespace; choose another", namespace)}
	}
	return nil
}
