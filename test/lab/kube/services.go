package kube

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
)

// ServiceLoad is a number of services in the first namespaces of MakeNamespaces. They have no selectors: each has one
// EndpointSlice.
type ServiceLoad struct {
	Count      int
	Endpoints  int    // of each service
	Namespaces int    // default 1
	Workers    int    // default Workers
	Prefix     string // of the services' names, default "service-"
	// Address returns the address of an endpoint. Default: unique addresses in 10.128.0.0/9.
	Address func(service, endpoint int) netip.Addr
}

func (l ServiceLoad) withDefaults() ServiceLoad {
	l.Namespaces = max(l.Namespaces, 1)
	if l.Workers == 0 {
		l.Workers = Workers
	}
	if l.Prefix == "" {
		l.Prefix = "service-"
	}
	if l.Address == nil {
		l.Address = func(service, endpoint int) netip.Addr {
			return addressAt(10<<24|128<<16, service*l.Endpoints+endpoint)
		}
	}
	return l
}

// Service returns the service with a number: TCP, 80 to the port named web.
func (l ServiceLoad) Service(i int) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: l.withDefaults().meta(i),
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{
			Name: "web", Port: 80, TargetPort: intstr.FromString("web"),
		}}},
	}
}

// Slice returns the endpoints of a service in a round of FlapEndpoints. In round 0 all are ready. In the later rounds every
// second endpoint is ready, alternating.
func (l ServiceLoad) Slice(i, round int) *discoveryv1.EndpointSlice {
	l = l.withDefaults()
	meta := l.meta(i)
	meta.Labels = map[string]string{discoveryv1.LabelServiceName: meta.Name}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  meta,
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new("web"), Port: new(int32(8080))}},
	}
	for e := range l.Endpoints {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{l.Address(i, e).String()},
			Conditions: discoveryv1.EndpointConditions{Ready: new(round == 0 || (i+e+round)%2 == 0)},
		})
	}
	return slice
}

func (l ServiceLoad) meta(i int) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: Namespace(i % l.Namespaces), Name: l.Prefix + strconv.Itoa(i)}
}

// MakeServices creates the services of a load with their endpoints, all ready.
func (c *ControlPlane) MakeServices(ctx context.Context, l ServiceLoad) (Timings, error) {
	return MakeServices(ctx, c.client, l)
}

// MakeServices is ControlPlane.MakeServices for another cluster.
func MakeServices(ctx context.Context, client kubernetes.Interface, l ServiceLoad) (Timings, error) {
	l = l.withDefaults()
	return Each(ctx, l.Count, l.Workers, func(ctx context.Context, i int) error {
		service, slice := l.Service(i), l.Slice(i, 0)
		if _, err := client.CoreV1().Services(service.Namespace).Create(ctx, service, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("make service %s/%s: %w", service.Namespace, service.Name, err)
		}
		if _, err := client.DiscoveryV1().EndpointSlices(slice.Namespace).Create(ctx, slice, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("make endpoints of service %s/%s: %w", service.Namespace, service.Name, err)
		}
		return nil
	})
}

// FlapEndpoints gives all services of a load the endpoints of a round.
func (c *ControlPlane) FlapEndpoints(ctx context.Context, l ServiceLoad, round int) (Timings, error) {
	l = l.withDefaults()
	return Each(ctx, l.Count, l.Workers, func(ctx context.Context, i int) error {
		slice := l.Slice(i, round)
		_, err := c.client.DiscoveryV1().EndpointSlices(slice.Namespace).Update(ctx, slice, metav1.UpdateOptions{})
		if err != nil {
			return fmt.Errorf("change endpoints of %s/%s: %w", slice.Namespace, slice.Name, err)
		}
		return nil
	})
}
