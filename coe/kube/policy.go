package kube

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"github.com/coe-bridge/coe-bridge/coe"
)

// Policy converts a network policy. It fails closed: the result for a policy that PolicySpec
// refuses, or that is above a limit of coe, isolates the pods that it selects in both directions and
// has no rules, and Invalid says what is wrong. If the selector is wrong too, or above a limit, it
// selects all pods of the namespace.
func Policy(in *networkingv1.NetworkPolicy) *coe.PolicySpec {
	out, err := PolicySpec(in)
	if err == nil {
		excess := out.Excess()
		if excess == "" {
			return out
		}
		err = errors.New("spec: " + excess)
	}
	out = &coe.PolicySpec{Policy: policyName(in)}
	c := policyConverter{}
	if pods := c.selector(&in.Spec.PodSelector, nil); len(c.errs) == 0 {
		out.Pods = pods
	}
	out.Close(invalid(err))
	return out
}

// policyName returns a network policy without its rules.
func policyName(in *networkingv1.NetworkPolicy) coe.Policy {
	return coe.Policy{
		UID: uid(in.UID), Namespace: namespace(in.Namespace), Name: in.Name, Kind: coe.NetworkPolicy,
	}
}

// maxInvalid limits the text about a policy in bytes, because it repeats values of the policy.
const maxInvalid = 512

// invalid returns the first error, and how many more there are.
func invalid(err error) string {
	var all utilerrors.Aggregate
	if !errors.As(err, &all) || len(all.Errors()) == 1 {
		return shorten(err.Error())
	}
	return fmt.Sprintf("%s, and %d more", shorten(all.Errors()[0].Error()), len(all.Errors())-1)
}

func shorten(text string) string {
	if len(text) > maxInvalid {
		return strings.ToValidUTF8(text[:maxInvalid], "") + "…"
	}
	return text
}

// PolicySpec converts a network policy with its rules. It sets the defaults of an API server, and
// refuses what an API server refuses: the error names each wrong field. Like an API server
// before Kubernetes 1.36 it accepts a CIDR with leading zeros or with bits beyond its mask,
// because such objects can still be stored.
func PolicySpec(in *networkingv1.NetworkPolicy) (*coe.PolicySpec, error) {
	c := policyConverter{}
	spec := field.NewPath("spec")
	out := &coe.PolicySpec{
		Policy: policyName(in),
		Pods:   c.selector(&in.Spec.PodSelector, spec.Child("podSelector")),
	}
	out.Ingress.Isolates, out.Egress.Isolates = c.isolates(in, spec.Child("policyTypes"))
	for i, r := range in.Spec.Ingress {
		at := spec.Child("ingress").Index(i)
		rule := c.rule(r.From, at.Child("from"), r.Ports, at.Child("ports"))
		if out.Ingress.Isolates {
			out.Ingress.Rules = append(out.Ingress.Rules, rule)
		}
	}
	for i, r := range in.Spec.Egress {
		at := spec.Child("egress").Index(i)
		rule := c.rule(r.To, at.Child("to"), r.Ports, at.Child("ports"))
		if out.Egress.Isolates {
			out.Egress.Rules = append(out.Egress.Rules, rule)
		}
	}
	if err := c.errs.ToAggregate(); err != nil {
		return nil, err
	}
	return out, nil
}

// policyConverter converts the parts of a policy, and collects what is wrong.
type policyConverter struct{ errs field.ErrorList }

func (c *policyConverter) add(errs ...*field.Error) { c.errs = append(c.errs, errs...) }

// isolates returns the directions that the policy isolates. Without policyTypes these are ingress,
// and egress if there are egress rules.
func (c *policyConverter) isolates(in *networkingv1.NetworkPolicy, at *field.Path) (ingress, egress bool) {
	types := in.Spec.PolicyTypes
	if len(types) == 0 {
		return true, len(in.Spec.Egress) > 0
	}
	if len(types) > 2 {
		c.add(field.TooMany(at, len(types), 2))
	}
	for i, t := range types {
		switch t {
		case networkingv1.PolicyTypeIngress:
			ingress = true
		case networkingv1.PolicyTypeEgress:
			egress = true
		default:
			c.add(field.NotSupported(at.Index(i), t, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}))
		}
	}
	return ingress, egress
}

func (c *policyConverter) rule(peers []networkingv1.NetworkPolicyPeer, peersAt *field.Path, ports []networkingv1.NetworkPolicyPort, portsAt *field.Path) coe.PolicyRule {
	var out coe.PolicyRule
	for i := range peers {
		out.Peers = append(out.Peers, c.peer(&peers[i], peersAt.Index(i)))
	}
	for i := range ports {
		out.Ports = append(out.Ports, c.port(&ports[i], portsAt.Index(i)))
	}
	return out
}

func (c *policyConverter) peer(in *networkingv1.NetworkPolicyPeer, at *field.Path) coe.PolicyPeer {
	var out coe.PolicyPeer
	switch selects := in.PodSelector != nil || in.NamespaceSelector != nil; {
	case in.IPBlock != nil && selects:
		c.add(field.Forbidden(at, "ipBlock excludes podSelector and namespaceSelector"))
	case in.IPBlock != nil:
		out.Block = c.block(in.IPBlock, at.Child("ipBlock"))
	case !selects:
		c.add(field.Required(at, "want podSelector, namespaceSelector or ipBlock"))
	}
	if in.PodSelector != nil {
		out.Pods = c.selector(in.PodSelector, at.Child("podSelector"))
	}
	if in.NamespaceSelector != nil {
		namespaces := c.selector(in.NamespaceSelector, at.Child("namespaceSelector"))
		out.Namespaces = &namespaces
	}
	return out
}

func (c *policyConverter) block(in *networkingv1.IPBlock, at *field.Path) *coe.AddressBlock {
	cidr, ok := c.cidr(in.CIDR, at.Child("cidr"))
	out := &coe.AddressBlock{CIDR: cidr}
	for i, text := range in.Except {
		at := at.Child("except").Index(i)
		except, exceptOK := c.cidr(text, at)
		if ok && exceptOK && (!cidr.Contains(except.Addr()) || cidr.Bits() >= except.Bits()) {
			c.add(field.Invalid(at, text, "want a part of cidr that is smaller than cidr"))
		}
		out.Except = append(out.Except, except)
	}
	return out
}

// cidr parses a prefix like an API server: without the bits beyond the mask. An IPv4 prefix in
// IPv6 form is an IPv4 prefix.
func (c *policyConverter) cidr(text string, at *field.Path) (netip.Prefix, bool) {
	if text == "" {
		c.add(field.Required(at, "want a prefix like 10.0.0.0/8"))
		return netip.Prefix{}, false
	}
	_, parsed, err := netutils.ParseCIDRSloppy(text)
	if err != nil {
		c.add(field.Invalid(at, text, "want a prefix like 10.0.0.0/8"))
		return netip.Prefix{}, false
	}
	bits, size := parsed.Mask.Size()
	addr, _ := netip.AddrFromSlice(parsed.IP)
	if size == 128 && addr.Is4In6() {
		return netip.PrefixFrom(addr.Unmap(), bits-96), true
	}
	return netip.PrefixFrom(addr, bits), true
}

// port converts a port. Without a port, all ports of the protocol match, and without a protocol it
// is TCP.
func (c *policyConverter) port(in *networkingv1.NetworkPolicyPort, at *field.Path) coe.PolicyPort {
	out := coe.PolicyPort{Protocol: "tcp"}
	if in.Protocol != nil {
		if !slices.Contains(protocols, *in.Protocol) {
			c.add(field.NotSupported(at.Child("protocol"), *in.Protocol, protocols))
		}
		out.Protocol = protocol(*in.Protocol)
	}
	switch {
	case in.Port == nil:
		if in.EndPort != nil {
			c.add(field.Forbidden(at.Child("endPort"), "want it only with port"))
		}
	case in.Port.Type == intstr.String:
		c.invalid(at.Child("port"), in.Port.StrVal, validation.IsValidPortName(in.Port.StrVal))
		if in.EndPort != nil {
			c.add(field.Forbidden(at.Child("endPort"), "want it only with a port that is a number"))
		}
		out.Name = in.Port.StrVal
	default:
		first, last := in.Port.IntVal, in.Port.IntVal
		if in.EndPort != nil {
			last = *in.EndPort
			c.invalid(at.Child("endPort"), last, validation.IsValidPortNum(int(last)))
			if last < first {
				c.add(field.Invalid(at.Child("endPort"), last, fmt.Sprintf("want at least port, which is %d", first)))
			}
		}
		c.invalid(at.Child("port"), first, validation.IsValidPortNum(int(first)))
		out.First, out.Last = uint16(first), uint16(last)
	}
	return out
}

// protocols are the protocols of ports.
var protocols = []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}

func (c *policyConverter) invalid(at *field.Path, value any, messages []string) {
	for _, m := range messages {
		c.add(field.Invalid(at, value, m))
	}
}

// selector converts a selector, sorted, so that selectors that say the same are equal.
func (c *policyConverter) selector(in *metav1.LabelSelector, at *field.Path) coe.Selector {
	c.add(metav1validation.ValidateLabelSelector(in, metav1validation.LabelSelectorValidationOptions{}, at)...)
	var out coe.Selector
	for key, value := range in.MatchLabels {
		out.Requirements = append(out.Requirements, coe.Requirement{Key: key, Operator: coe.In, Values: []string{value}})
	}
	for _, e := range in.MatchExpressions {
		values := slices.Clone(e.Values)
		slices.Sort(values)
		out.Requirements = append(out.Requirements, coe.Requirement{Key: e.Key, Operator: coe.Operator(e.Operator), Values: slices.Compact(values)})
	}
	slices.SortFunc(out.Requirements, func(a, b coe.Requirement) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Operator, b.Operator), slices.Compare(a.Values, b.Values))
	})
	return out
}
