package kube

import (
	"net/netip"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/coe-bridge/coe-bridge/coe"
)

// serviceCIDRs is the resource of ServiceCIDRs, which API servers have since Kubernetes 1.33.
const serviceCIDRs = "servicecidrs"

// ServiceCIDR converts the ranges of cluster addresses of services. The API server has validated them.
func ServiceCIDR(in *networkingv1.ServiceCIDR) *coe.ServiceCIDR {
	out := &coe.ServiceCIDR{UID: uid(in.UID), Name: in.Name}
	for _, text := range in.Spec.CIDRs {
		if p, err := netip.ParsePrefix(text); err == nil {
			out.CIDRs = append(out.CIDRs, p.Masked())
		}
	}
	return out
}
