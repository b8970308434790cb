package main

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/coe-bridge/coe-bridge/test/lab/kube"
	"github.com/coe-bridge/coe-bridge/test/lab/synthapi"
)

// The large cluster.
const (
	largePods     = 50_000
	largeNodes    = 1000
	largeServices = 5000
)

var (
	largePodLoad     = kube.PodLoad{Count: largePods, Namespaces: namespaces, Nodes: largeNodes}
	largeServiceLoad = kube.ServiceLoad{Count: largeServices, Endpoints: 2, Namespaces: namespaces}
)

// serveLarge serves the large cluster.
func serveLarge(dir string) (*synthapi.API, error) {
	api, err := synthapi.Serve(dir)
	if err != nil {
		return nil, err
	}
	synthapi.Add(api, synthapi.Namespaces, namespaces, synthapi.Namespace)
	synthapi.Add(api, synthapi.Nodes, largeNodes, synthapi.Node)
	synthapi.Add(api, synthapi.Pods, largePods, func(i int) corev1.Pod { return api.Pod(largePodLoad, i) })
	synthapi.Add(api, synthapi.Services, largeServices, serviceOf)
	synthapi.Add(api, synthapi.EndpointSlices, largeServices, sliceOf)
	synthapi.Add(api, synthapi.Policies, 0, nil)
	synthapi.Add(api, synthapi.ServiceCIDRs, 0, nil)
	return api, nil
}

func serviceOf(i int) corev1.Service {
	s := largeServiceLoad.Service(i)
	s.ObjectMeta = synthapi.Meta(s.ObjectMeta, serviceUID, i)
	s.Spec.Type = corev1.ServiceTypeClusterIP
	s.Spec.ClusterIP = netip.AddrFrom4([4]byte{10, 96, byte(1 + i/250), byte(1 + i%250)}).String()
	s.Spec.ClusterIPs = []string{s.Spec.ClusterIP}
	s.Spec.Ports[0].Protocol = corev1.ProtocolTCP
	return *s
}

func sliceOf(i int) discoveryv1.EndpointSlice {
	e := largeServiceLoad.Slice(i, 0)
	e.ObjectMeta = synthapi.Meta(e.ObjectMeta, sliceUID, i)
	for p := range e.Ports {
		e.Ports[p].Protocol = new(corev1.ProtocolTCP)
	}
	return *e
}

// The kinds in UIDs.
const (
	serviceUID = "8004"
	sliceUID   = "8005"
)
