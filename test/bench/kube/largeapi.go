package main

import (
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
	synthapi.Add(api, synthapi.Services, largeServices, func(i int) corev1.Service { return synthapi.Service(largeServiceLoad, i) })
	synthapi.Add(api, synthapi.EndpointSlices, largeServices, func(i int) discoveryv1.EndpointSlice { return synthapi.EndpointSlice(largeServiceLoad, i) })
	synthapi.Add(api, synthapi.Policies, 0, nil)
	synthapi.Add(api, synthapi.ServiceCIDRs, 0, nil)
	return api, nil
}
