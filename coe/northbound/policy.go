package northbound

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/coe-bridge/coe-bridge/coe"
)

type policyEntry struct {
	UUID string     `json:"uuid"`
	Name string     `json:"name"`
	Spec policySpec `json:"network-policy-spec"`
}

type policySpec struct {
	Pods    selectorEntry `json:"pod-selector"`
	Ingress []struct {
		Rule struct {
			Ports []portEntry `json:"ingress-ports"`
			Peers []peerEntry `json:"from"`
		} `json:"network-policy-ingress-rule"`
	} `json:"ingress"`
	Egress []struct {
		Rule struct {
			Ports []portEntry `json:"egress-ports"`
			Peers []peerEntry `json:"to"`
		} `json:"network-policy-egress-rule"`
	} `json:"egress"`
	Types []coe.Direction `json:"policy-types"`
}

type selectorEntry struct {
	Labels []struct {
		Key   string `json:"key"`
		Value string `json:"value"`
	} `json:"match-labels"`
}

type portEntry struct {
	Port struct {
		Protocol string  `json:"protocol"`
		Port     *string `json:"port"`
	} `json:"network-policy-port"`
}

type peerEntry struct {
	Peer struct {
		Pods       *selectorEntry `json:"peer-pod-selector"`
		Namespaces *selectorEntry `json:"peer-namespace-selector"`
		Block      *blockEntry    `json:"ip-block"`
	} `json:"network-policy-peer"`
}

type blockEntry struct {
	CIDR   string   `json:"cidr"`
	Except []string `json:"except"`
}

// NetworkPolicy reads an entry of k8s:k8s/network-policies/network-policy. The model has no
// namespace for it, so it is a policy of the namespace default. Other absent values have the meaning
// that they have in Kubernetes. It fails closed: if a value is wrong, the policy isolates the pods
// that it selects in both directions and has no rules, and Invalid names the value.
func NetworkPolicy(raw []byte) (*coe.PolicySpec, error) {
	var in policyEntry
	if err := json.Unmarshal(raw, &in); err != nil {
		return nil, fmt.Errorf("read network policy: %w", err)
	}
	out := &coe.PolicySpec{Policy: coe.Policy{UID: in.UUID, Namespace: coe.DefaultNamespace, Name: in.Name, Kind: coe.NetworkPolicy}}
	pods, podsErr := in.Spec.Pods.selector()
	out.Pods = pods
	var err error
	out.Ingress, out.Egress, err = in.Spec.sides()
	closeIf(out, "network-policy-spec", cmp.Or(within("pod-selector", podsErr), err))
	return out, nil
}

// closeIf makes a policy fail closed if there is an error, or if it is above a limit.
func closeIf(p *coe.PolicySpec, leaf string, err error) {
	if excess := p.Excess(); err == nil && excess != "" {
		err = errors.New(excess)
	}
	if err != nil {
		p.Close(within(leaf, err).Error())
	}
}

// sides converts the rules, also of a direction that the policy does not isolate. It returns the
// first error.
func (s *policySpec) sides() (ingress, egress coe.PolicySide, err error) {
	ingress.Isolates = len(s.Types) == 0 || slices.Contains(s.Types, coe.Ingress)
	egress.Isolates = len(s.Types) == 0 && len(s.Egress) > 0 || slices.Contains(s.Types, coe.Egress)
	for i, r := range s.Ingress {
		rule, err := ruleOf(r.Rule.Ports, "ingress-ports", r.Rule.Peers, "from")
		if err != nil {
			return ingress, egress, within(fmt.Sprintf("ingress[%d]", i), err)
		}
		if ingress.Isolates {
			ingress.Rules = append(ingress.Rules, rule)
		}
	}
	for i, r := range s.Egress {
		rule, err := ruleOf(r.Rule.Ports, "egress-ports", r.Rule.Peers, "to")
		if err != nil {
			return ingress, egress, within(fmt.Sprintf("egress[%d]", i), err)
		}
		if egress.Isolates {
			egress.Rules = append(egress.Rules, rule)
		}
	}
	return ingress, egress, nil
}

// within adds the path of the value to an error, which may be nil.
func within(path string, err error) error {
	if err == nil {
		return nil
	}
	var inner *LeafError
	if errors.As(err, &inner) {
		return &LeafError{path + "/" + inner.Leaf, inner.Err}
	}
	return &LeafError{path, err}
}

func ruleOf(ports []portEntry, portsName string, peers []peerEntry, peersName string) (rule coe.PolicyRule, err error) {
	for i := range ports {
		port, err := ports[i].port()
		if err != nil {
			return rule, within(fmt.Sprintf("%s[%d]", portsName, i), err)
		}
		rule.Ports = append(rule.Ports, port)
	}
	for i := range peers {
		peer, err := peers[i].peer()
		if err != nil {
			return rule, within(fmt.Sprintf("%s[%d]", peersName, i), err)
		}
		rule.Peers = append(rule.Peers, peer)
	}
	return rule, nil
}

// portName is a name of a port: RFC 6335, section 5.1.
var portName = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

func (e *portEntry) port() (coe.PolicyPort, error) {
	out := coe.PolicyPort{Protocol: strings.ToLower(cmp.Or(e.Port.Protocol, "TCP"))}
	if e.Port.Port == nil {
		return out, nil
	}
	text := *e.Port.Port
	if number, err := strconv.ParseUint(text, 10, 16); err == nil && number > 0 {
		out.First, out.Last = uint16(number), uint16(number)
		return out, nil
	}
	if len(text) > 15 || !portName.MatchString(text) || !strings.ContainsFunc(text, isLetter) {
		return out, within("port", fmt.Errorf("%.40q is neither a port number nor a port name; want 1..65535, or a name like http", text))
	}
	out.Name = text
	return out, nil
}

func isLetter(r rune) bool { return 'a' <= r && r <= 'z' }

func (e *peerEntry) peer() (out coe.PolicyPeer, err error) {
	in := &e.Peer
	switch selects := in.Pods != nil || in.Namespaces != nil; {
	case in.Block != nil && selects:
		return out, errors.New("ip-block excludes peer-pod-selector and peer-namespace-selector")
	case in.Block != nil:
		out.Block, err = in.Block.block()
		return out, within("ip-block", err)
	case !selects:
		return out, errors.New("want peer-pod-selector, peer-namespace-selector or ip-block")
	}
	if in.Pods != nil {
		if out.Pods, err = in.Pods.selector(); err != nil {
			return out, within("peer-pod-selector", err)
		}
	}
	if in.Namespaces != nil {
		namespaces, err := in.Namespaces.selector()
		out.Namespaces = &namespaces
		return out, within("peer-namespace-selector", err)
	}
	return out, nil
}

func (e *blockEntry) block() (*coe.AddressBlock, error) {
	cidr, err := prefixOf(e.CIDR)
	if err != nil {
		return nil, within("cidr", err)
	}
	out := &coe.AddressBlock{CIDR: cidr}
	for i, text := range e.Except {
		except, err := prefixOf(text)
		if err == nil && (!cidr.Contains(except.Addr()) || cidr.Bits() >= except.Bits()) {
			err = fmt.Errorf("%s is not a part of %s", except, cidr)
		}
		if err != nil {
			return nil, within(fmt.Sprintf("except[%d]", i), err)
		}
		out.Except = append(out.Except, except)
	}
	return out, nil
}

// prefixOf parses a prefix, without the bits beyond its mask. An IPv4 prefix in IPv6 form is an IPv4
// prefix.
func prefixOf(text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return p, fmt.Errorf("%.60q is not a prefix; want a prefix like 10.11.2.0/24", text)
	}
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p.Masked(), nil
}

// Keys and values of labels, as in Kubernetes.
var (
	labelKey   = regexp.MustCompile(`^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`)
	labelValue = regexp.MustCompile(`^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$`)
)

// selector returns the selector of the labels, sorted; of everything if one is wrong.
func (e *selectorEntry) selector() (out coe.Selector, err error) {
	values := map[string]string{}
	for i, l := range e.Labels {
		at := fmt.Sprintf("match-labels[%d]", i)
		before, found := values[l.Key]
		switch {
		case !labelKey.MatchString(l.Key):
			return coe.Selector{}, within(at+"/key", fmt.Errorf("%.40q is not the key of a label", l.Key))
		case !labelValue.MatchString(l.Value):
			return coe.Selector{}, within(at+"/value", fmt.Errorf("%.40q is not the value of a label", l.Value))
		case found && before != l.Value:
			return coe.Selector{}, within(at, fmt.Errorf("the label %s cannot have two values", l.Key))
		case found:
			continue
		}
		values[l.Key] = l.Value
		out.Requirements = append(out.Requirements, coe.Requirement{Key: l.Key, Operator: coe.In, Values: []string{l.Value}})
	}
	slices.SortFunc(out.Requirements, func(a, b coe.Requirement) int { return cmp.Compare(a.Key, b.Key) })
	return out, nil
}
