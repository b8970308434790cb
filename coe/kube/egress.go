package kube

import (
	"fmt"
	"net/netip"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coe-bridge/coe-bridge/coe"
)

// EgressIPs is the resource of EgressIPs (deploy/kubernetes/bridge/egressips.yaml).
var EgressIPs = schema.GroupVersionResource{Group: "coe-bridge.io", Version: "v1", Resource: "egressips"}

// egressIP is an EgressIP without its status.
type egressIP struct {
	Spec struct {
		EgressIPs         []string              `json:"egressIPs"`
		NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector"`
		PodSelector       metav1.LabelSelector  `json:"podSelector"`
	} `json:"spec"`
}

// EgressSpec converts an EgressIP. If the API server has not validated it, the result says what is wrong.
func EgressSpec(in *unstructured.Unstructured) *coe.EgressSpec {
	out := &coe.EgressSpec{UID: uid(in.GetUID()), Name: in.GetName(), Created: in.GetCreationTimestamp().UTC()}
	var e egressIP
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(in.Object, &e); err != nil {
		out.Invalid = err.Error()
		return out
	}
	var c policyConverter
	at := field.NewPath("spec")
	if e.Spec.NamespaceSelector == nil {
		c.add(field.Required(at.Child("namespaceSelector"), "want a selector; an empty one selects all namespaces"))
	} else {
		out.Namespaces = c.selector(e.Spec.NamespaceSelector, at.Child("namespaceSelector"))
	}
	out.Pods = c.selector(&e.Spec.PodSelector, at.Child("podSelector"))
	if err := c.errs.ToAggregate(); err != nil {
		out.Invalid = invalid(err)
	}
	c.errs = nil
	if len(e.Spec.EgressIPs) != 1 {
		c.add(field.Invalid(at.Child("egressIPs"), fmt.Sprint(e.Spec.EgressIPs), "want exactly one address"))
	} else {
		addr, err := netip.ParseAddr(e.Spec.EgressIPs[0])
		if err != nil || !addr.Is4() {
			c.add(field.Invalid(at.Child("egressIPs").Index(0), e.Spec.EgressIPs[0], "want an IPv4 address"))
		}
		out.Address = addr
	}
	if err := c.errs.ToAggregate(); err != nil {
		out.InvalidAddress = invalid(err)
	}
	return out
}
