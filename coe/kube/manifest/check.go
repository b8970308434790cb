package manifest

import (
	"net/netip"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/kube"
)

// The checks cover what a bridge reads. No API server has validated a manifest, and the
// conversions ignore invalid values.

// space is the namespace for the UIDs of objects without one.
var space = uuid.MustParse("2a4c1f0e-8d5b-5c36-9a7e-6b1f0d3c9e52")

// stableUID returns a UID that is derived from a name.
func stableUID(name string) string {
	return uuid.NewSHA1(space, []byte(name)).String()
}

// complete sets a missing namespace and UID of an object, and checks its name.
func complete(kind string, o metav1.Object) error {
	path := field.NewPath("metadata")
	if o.GetName() == "" {
		return field.Required(path.Child("name"), "the name that an API server would generate is unknown")
	}
	var errs []error
	for _, wrong := range validation.IsDNS1123Subdomain(o.GetName()) {
		errs = append(errs, field.Invalid(path.Child("name"), o.GetName(), wrong))
	}
	if o.GetNamespace() == "" && kind != "Node" && kind != "Namespace" && kind != egressKind {
		o.SetNamespace(coe.DefaultNamespace)
	}
	if o.GetNamespace() != "" {
		for _, wrong := range validation.IsDNS1123Label(o.GetNamespace()) {
			errs = append(errs, field.Invalid(path.Child("namespace"), o.GetNamespace(), wrong))
		}
	}
	if o.GetUID() == "" {
		o.SetUID(types.UID(stableUID(kind + " " + o.GetNamespace() + "/" + o.GetName())))
	}
	return utilerrors.NewAggregate(errs)
}

func checkNamespace(*corev1.Namespace) error { return nil }

func checkNode(n *corev1.Node) error {
	var errs []error
	for i, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP || a.Type == corev1.NodeExternalIP {
			errs = append(errs, checkAddress(field.NewPath("status", "addresses").Index(i).Child("address"), a.Address))
		}
	}
	for i, cidr := range n.Spec.PodCIDRs {
		if _, err := netip.ParsePrefix(cidr); err != nil {
			errs = append(errs, field.Invalid(field.NewPath("spec", "podCIDRs").Index(i), cidr, "want a prefix like 10.11.2.0/24"))
		}
	}
	return utilerrors.NewAggregate(errs)
}

func checkPod(p *corev1.Pod) error {
	var errs []error
	status := field.NewPath("status")
	for i, ip := range p.Status.PodIPs {
		errs = append(errs, checkAddress(status.Child("podIPs").Index(i).Child("ip"), ip.IP))
	}
	errs = append(errs, checkAddress(status.Child("podIP"), p.Status.PodIP), checkAddress(status.Child("hostIP"), p.Status.HostIP))
	for i, ip := range p.Status.HostIPs {
		errs = append(errs, checkAddress(status.Child("hostIPs").Index(i).Child("ip"), ip.IP))
	}
	errs = append(errs, checkContainers(field.NewPath("spec", "containers"), p.Spec.Containers)...)
	errs = append(errs, checkContainers(field.NewPath("spec", "initContainers"), p.Spec.InitContainers)...)
	return utilerrors.NewAggregate(errs)
}

func checkContainers(at *field.Path, containers []corev1.Container) []error {
	var errs []error
	for i, c := range containers {
		for j, port := range c.Ports {
			at := at.Index(i).Child("ports").Index(j)
			errs = append(errs, checkPort(at.Child("containerPort"), port.ContainerPort), checkProtocol(at, port.Protocol))
		}
	}
	return errs
}

func checkService(s *corev1.Service) error {
	var errs []error
	spec := field.NewPath("spec")
	for i, p := range s.Spec.Ports {
		at := spec.Child("ports").Index(i)
		errs = append(errs, checkPort(at.Child("port"), p.Port), checkProtocol(at, p.Protocol))
		if p.TargetPort.Type == intstr.Int && p.TargetPort.IntVal != 0 {
			errs = append(errs, checkPort(at.Child("targetPort"), p.TargetPort.IntVal))
		}
	}
	if s.Spec.ClusterIP != corev1.ClusterIPNone {
		errs = append(errs, checkAddress(spec.Child("clusterIP"), s.Spec.ClusterIP))
		for i, text := range s.Spec.ClusterIPs {
			errs = append(errs, checkAddress(spec.Child("clusterIPs").Index(i), text))
		}
	}
	for i, text := range s.Spec.ExternalIPs {
		errs = append(errs, checkAddress(spec.Child("externalIPs").Index(i), text))
	}
	return utilerrors.NewAggregate(errs)
}

func checkSlice(s *discoveryv1.EndpointSlice) error {
	var errs []error
	for i, p := range s.Ports {
		at := field.NewPath("ports").Index(i)
		if p.Port != nil {
			errs = append(errs, checkPort(at.Child("port"), *p.Port))
		}
		if p.Protocol != nil {
			errs = append(errs, checkProtocol(at, *p.Protocol))
		}
	}
	for i, e := range s.Endpoints {
		for j, text := range e.Addresses {
			if s.AddressType != discoveryv1.AddressTypeFQDN {
				errs = append(errs, checkAddress(field.NewPath("endpoints").Index(i).Child("addresses").Index(j), text))
			}
		}
	}
	return utilerrors.NewAggregate(errs)
}

func checkPolicy(p *networkingv1.NetworkPolicy) error {
	_, err := kube.PolicySpec(p)
	return err
}

// checkAddress accepts an address or an empty text.
func checkAddress(path *field.Path, text string) error {
	if _, err := netip.ParseAddr(text); text != "" && err != nil {
		return field.Invalid(path, text, "want an IPv4 or IPv6 address")
	}
	return nil
}

func checkPort(path *field.Path, port int32) error {
	if port < 1 || port > 65535 {
		return field.Invalid(path, port, "want a port number, 1..65535")
	}
	return nil
}

// checkProtocol accepts a protocol or an empty text, which means TCP.
func checkProtocol(of *field.Path, p corev1.Protocol) error {
	switch p {
	case "", corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP:
		return nil
	}
	return field.Invalid(of.Child("protocol"), p, "want TCP, UDP or SCTP")
}
