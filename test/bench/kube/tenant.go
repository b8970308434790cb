package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/coe-bridge/coe-bridge/test/bench/figures"
	"github.com/coe-bridge/coe-bridge/test/bench/process"
	"github.com/coe-bridge/coe-bridge/test/lab/kube"
	"github.com/coe-bridge/coe-bridge/test/lab/ovsdb"
	"github.com/coe-bridge/coe-bridge/test/lab/synthapi"
)

const (
	// tenantObjects is the number of objects that the tenant creates.
	tenantObjects = 1000
	// tenantBound is the largest amount of memory that they may cost the bridge.
	tenantBound = 100 * process.Megabyte
)

// tenant creates the objects that cost the bridge most, within the limits of the API server. The
// bridge allows services to have external addresses in 192.0.2.0/24.
type tenant struct {
	name       string
	namespaces int
	pods       func(i int) corev1.Pod
	services   func(i int) corev1.Service
	slices     func(i int) discoveryv1.EndpointSlice
	// nPods, nServices and nSlices are the numbers of objects.
	nPods, nServices, nSlices int
}

var tenants = []tenant{
	{name: "nothing"},
	{name: "1,000 namespaces", namespaces: tenantObjects},
	{name: "500 namespaces with a pod each", namespaces: 500, nPods: 500, pods: hostilePod(500, 0)},
	{name: "1,000 pods with long names", namespaces: 1, nPods: tenantObjects - 1, pods: hostilePod(1, 0)},
	{name: "1,000 pods with annotations of 250 KB", namespaces: 1, nPods: tenantObjects - 1, pods: hostilePod(1, 250_000)},
	{name: "1,000 services with 128 ports", namespaces: 1, nServices: tenantObjects - 1, services: hostileService(1, 128, 0)},
	{name: "1,000 services with 10,000 ports", namespaces: 1, nServices: tenantObjects - 1, services: hostileService(1, 10_000, 0)},
	{name: "1,000 services with 10 ports and 24 external addresses", namespaces: 1, nServices: tenantObjects - 1, services: hostileService(1, 10, 24)},
	{name: "1,000 services with 250 addresses that are refused", namespaces: 1, nServices: tenantObjects - 1, services: hostileService(1, 2, -250)},
	{name: "1,000 slices of 1,000 endpoints", namespaces: 1, nSlices: tenantObjects - 1, slices: hostileSlice(1, tenantObjects, 1000, 1)},
	{name: "1,000 slices of 1,000 endpoints and 5,000 ports", namespaces: 1, nSlices: tenantObjects - 1, slices: hostileSlice(1, tenantObjects, 1000, 5000)},
	{
		name: "300 namespaces, 350 services of 2,500 endpoints", namespaces: 300,
		nServices: 350, services: hostileService(300, 5, 0), nSlices: 350, slices: hostileSlice(300, 350, 500, 5),
	},
	{
		name: "50 namespaces, 475 services of 2,500 endpoints", namespaces: 50,
		nServices: 475, services: hostileService(50, 5, 0), nSlices: 475, slices: hostileSlice(50, 475, 500, 5),
	},
	{
		name: "50 namespaces, 475 services of 2,500 endpoints on 100 ports", namespaces: 50,
		nServices: 475, services: hostileService(50, 100, 0), nSlices: 475, slices: hostileSlice(50, 475, 25, 100),
	},
	{
		name: "one namespace, 10 services with 10 ports and 989,000 endpoints", namespaces: 1,
		nServices: 10, services: hostileService(1, 10, 0), nSlices: 989, slices: hostileSlice(1, 10, 1000, 10),
	},
	{
		name: "one namespace, 499 services of 2,500 endpoints", namespaces: 1,
		nServices: 499, services: hostileService(1, 5, 0), nSlices: 500, slices: hostileSlice(1, 499, 500, 5),
	},
}

// longest returns the longest name that Kubernetes allows.
func longest(kind string, i, length int) string {
	name := fmt.Sprintf("%s-%d", kind, i)
	return name + strings.Repeat("x", length-len(name))
}

func hostilePod(namespaces, annotation int) func(int) corev1.Pod {
	return func(i int) corev1.Pod {
		p := kube.PodLoad{Count: tenantObjects, Namespaces: namespaces, Nodes: 1}.Pod(i)
		p.ObjectMeta = synthapi.Meta(p.ObjectMeta, "8003", i)
		p.Name, p.Namespace = longest("pod", i, 253), kube.Namespace(i%namespaces)
		if annotation > 0 {
			p.Annotations = map[string]string{"coe-bridge.io/interfaces": strings.Repeat("x", annotation)}
		}
		return *p
	}
}

// hostileService returns a service with a number of ports and of external addresses. If external is
// negative, the addresses are outside the allowed range.
func hostileService(namespaces, ports, external int) func(int) corev1.Service {
	return func(i int) corev1.Service {
		s := corev1.Service{ObjectMeta: synthapi.Meta(metav1.ObjectMeta{
			Name: longest("s", i, 63), Namespace: kube.Namespace(i % namespaces),
		}, "8004", i)}
		s.Spec.Type = corev1.ServiceTypeClusterIP
		s.Spec.ClusterIP = netip.AddrFrom4([4]byte{10, 96, byte(1 + i/250), byte(1 + i%250)}).String()
		s.Spec.ClusterIPs = []string{s.Spec.ClusterIP}
		for p := range ports {
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{
				Name: longest("p", p, 63), Port: int32(p + 1), Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(int32(p + 1)),
			})
		}
		for e := range max(external, -external) {
			address := netip.AddrFrom4([4]byte{192, 0, 2, byte(e)})
			if external < 0 {
				address = netip.AddrFrom4([4]byte{8, 8, byte(i), byte(e)})
			}
			s.Spec.ExternalIPs = append(s.Spec.ExternalIPs, address.String())
		}
		return s
	}
}

// hostileSlice returns an endpoint slice. The slices belong to a number of services.
func hostileSlice(namespaces, services, endpoints, ports int) func(int) discoveryv1.EndpointSlice {
	return func(i int) discoveryv1.EndpointSlice {
		service := i % services
		e := discoveryv1.EndpointSlice{
			ObjectMeta: synthapi.Meta(metav1.ObjectMeta{
				Name: longest("e", i, 253), Namespace: kube.Namespace(service % namespaces),
				Labels: map[string]string{discoveryv1.LabelServiceName: longest("s", service, 63)},
			}, "8005", i),
			AddressType: discoveryv1.AddressTypeIPv4,
		}
		for n := range endpoints {
			at := i*endpoints + n
			e.Endpoints = append(e.Endpoints, discoveryv1.Endpoint{
				Addresses: []string{netip.AddrFrom4([4]byte{byte(100 + at>>24), byte(at >> 16), byte(at >> 8), byte(at)}).String()},
			})
		}
		for p := range ports {
			e.Ports = append(e.Ports, discoveryv1.EndpointPort{
				Name: new(longest("p", p, 63)), Port: new(int32(10_000 + p)), Protocol: new(corev1.ProtocolTCP),
			})
		}
		return e
	}
}

// measureTenant starts a bridge with the objects of each tenant, one after the other. It compares
// the resident memory with the smallest of all tenants. The memory of an empty bridge is not a good
// reference: it can contain memory that the bridge has not returned to the kernel since its start.
func measureTenant(ctx context.Context, b *bench) (all []figures.Figure, err error) {
	type measured struct{ resident, peak float64 }
	var of []measured
	idle := math.Inf(1)
	for _, t := range tenants {
		resident, peak, told, err := t.measure(ctx, b)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t.name, err)
		}
		b.Say("%s: %.0f MB resident (%.0f MB at most); %s", t.name, resident/process.Megabyte, peak/process.Megabyte, told)
		of, idle = append(of, measured{resident, peak}), min(idle, resident)
	}
	for i, t := range tenants {
		above := of[i].resident - idle
		all = append(all, figures.Figure{
			Name:     "one tenant's objects: " + t.name,
			Measured: fmt.Sprintf("%.0f MB above idle (%.0f MB at most before)", above/process.Megabyte, (of[i].peak-idle)/process.Megabyte),
			Bound:    fmt.Sprintf("at most %d MB", tenantBound/process.Megabyte), Within: above <= tenantBound,
		})
	}
	return all, nil
}

// measure returns the resident memory and its peak, with the objects of a tenant.
func (t tenant) measure(ctx context.Context, b *bench) (resident, peak float64, told string, err error) {
	api, err := synthapi.Serve(b.Dir)
	if err != nil {
		return 0, 0, "", err
	}
	defer func() { err = errors.Join(err, api.Close()) }()
	t.serve(api)
	nb, err := ovsdb.Run()
	if err != nil {
		return 0, 0, "", err
	}
	defer func() { err = errors.Join(err, nb.Close()) }()
	dir, err := b.Folder("tenant")
	if err != nil {
		return 0, 0, "", err
	}
	br, err := process.Start(ctx, b.config(api.Kubeconfig, nb, process.OnFolder(dir), "0"),
		"--external-addresses", "192.0.2.0/24", "--service-network", "10.96.0.0/12")
	if err != nil {
		return 0, 0, "", err
	}
	defer func() { err = errors.Join(err, br.Stop()) }()
	if err := br.AwaitKnown(ctx); err != nil {
		return 0, 0, "", err
	}
	begun := time.Now()
	if _, err := br.AwaitSync(ctx, t.nPods); err != nil {
		return 0, 0, "", err
	}
	objects, _, err := br.Client.Written(ctx)
	if err != nil {
		return 0, 0, "", err
	}
	told = fmt.Sprintf("%d objects after %s", objects, figures.Short(time.Since(begun)))
	resident, peak, err = br.Settled(ctx)
	return resident, peak, told, err
}

// serve adds the objects of the tenant to an API.
func (t tenant) serve(api *synthapi.API) {
	synthapi.Add(api, synthapi.Namespaces, t.namespaces, synthapi.Namespace)
	synthapi.Add(api, synthapi.Nodes, 1, synthapi.Node)
	synthapi.Add(api, synthapi.Pods, t.nPods, t.pods)
	synthapi.Add(api, synthapi.Services, t.nServices, t.services)
	synthapi.Add(api, synthapi.EndpointSlices, t.nSlices, t.slices)
	synthapi.Add(api, synthapi.Policies, 0, nil)
	synthapi.Add(api, synthapi.ServiceCIDRs, 0, nil)
}
