package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/test/bench/process"
	"github.com/coe-bridge/coe-bridge/test/lab/agents"
	"github.com/coe-bridge/coe-bridge/test/lab/etcd"
	"github.com/coe-bridge/coe-bridge/test/lab/kube"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
	"github.com/coe-bridge/coe-bridge/test/lab/synthapi"
)

// For each node there are 50 pods, each of another namespace, 5 services with 10 endpoints each, and a policy.
const (
	namespaces      = 50
	podsOfNode      = 50
	servicesOfNode  = 5
	endpoints       = 10
	realHosts       = 3
	hostPodEvery    = 10 // further pods for one that comes to a real host
	streamsTimeout  = time.Minute
	furtherPorts    = 100 // ports of further pods in the switches of all real hosts
	namespaceGroups = 50  // values of the label group
	namespaceApps   = 10  // values of the label app
)

// simulation is a cluster of some nodes.
type simulation struct {
	*bench
	nodes   int
	load    kube.PodLoad
	first   int // number of the first pod on a real host
	api     *synthapi.API
	pods    *synthapi.Resource[corev1.Pod]
	etcd    *etcd.Cluster
	lab     *ovnhost.Lab
	chassis *chassis
	streams *agents.Streams
	mu      sync.Mutex
	bridges []*process.Bridge // the leader first; mu protects changes, and looks of the goroutine that reports progress
	wanted  int               // the last nb_cfg; the lab has used lower ones at its start
}

// newSimulation starts everything but bridges.
func (b *bench) newSimulation(ctx context.Context, nodes int) (_ *simulation, err error) {
	s := &simulation{bench: b, nodes: nodes, load: kube.PodLoad{Count: nodes * podsOfNode, Namespaces: namespaces, Nodes: nodes - realHosts}, wanted: 1000}
	s.first = s.load.Count - realHosts*podsOfNode
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if err := s.serve(); err != nil {
		return nil, err
	}
	if s.etcd, err = etcd.Run(ctx, 1); err != nil {
		return nil, err
	}
	var hosts []string
	for i := range realHosts {
		hosts = append(hosts, kube.Node(s.load.Nodes+i))
	}
	if s.lab, err = ovnhost.Start(ctx, ovnhost.Config{Prefix: "scale" + strconv.Itoa(os.Getpid()), Hosts: hosts}); err != nil {
		return nil, err
	}
	s.Say("%d nodes: adding chassis, and %d ports to the switches of real hosts", nodes, realHosts*podsOfNode+furtherPorts)
	if s.chassis, err = addChassis(ctx, s.lab, s.load.Nodes); err != nil {
		return nil, err
	}
	return s, s.plug(ctx)
}

// serve serves the objects of Kubernetes.
func (s *simulation) serve() (err error) {
	dir, err := s.Folder("api")
	if err != nil {
		return err
	}
	if s.api, err = synthapi.Serve(dir); err != nil {
		return err
	}
	services := kube.ServiceLoad{Count: s.nodes * servicesOfNode, Endpoints: endpoints, Namespaces: namespaces}
	synthapi.Add(s.api, synthapi.Namespaces, namespaces, synthapi.Namespace)
	synthapi.Add(s.api, synthapi.Nodes, s.nodes, synthapi.Node)
	s.pods = synthapi.Add(s.api, synthapi.Pods, s.load.Count, s.pod)
	synthapi.Add(s.api, synthapi.Services, services.Count, func(i int) corev1.Service { return synthapi.Service(services, i) })
	synthapi.Add(s.api, synthapi.EndpointSlices, services.Count, func(i int) discoveryv1.EndpointSlice { return synthapi.EndpointSlice(services, i) })
	synthapi.Add(s.api, synthapi.Policies, s.nodes, policy)
	synthapi.Add(s.api, synthapi.ServiceCIDRs, 0, nil)
	return nil
}

func (s *simulation) pod(i int) corev1.Pod {
	p := s.api.Pod(s.load, i)
	if s.onHost(i) {
		p.Spec.NodeName = kube.Node(s.load.Nodes + i/hostPodEvery%realHosts)
		if i < s.load.Count {
			p.Spec.NodeName = kube.Node(s.load.Nodes + i%realHosts)
		}
	}
	p.Labels = labels(i)
	return p
}

// onHost reports whether a pod is on a real host.
func (s *simulation) onHost(i int) bool {
	return i >= s.first && (i < s.load.Count || i%hostPodEvery == 0)
}

// portOf returns the name of a pod's switch port.
func (s *simulation) portOf(i int) string {
	p := s.pod(i)
	return netvirt.InterfaceName(p.Namespace, p.Name, "", true)
}

// plug adds the ports of all pods on real hosts to the switches, also of further pods.
func (s *simulation) plug(ctx context.Context) error {
	args := map[string][]string{}
	for i := s.first; i < s.load.Count+furtherPorts*hostPodEvery; i++ {
		if !s.onHost(i) {
			continue
		}
		p, port := s.pod(i), s.portOf(i)
		name := netvirt.PortName(port, string(p.UID))
		args[p.Spec.NodeName] = append(args[p.Spec.NodeName], "--", "add-port", "br-int", name, "--", "set", "Interface", name, "type=internal",
			fmt.Sprintf("external_ids:iface-id=%q", port), fmt.Sprintf("external_ids:iface-id-ver=%q", p.UID))
	}
	for host, all := range args {
		if _, err := s.lab.Host(host).VSCtl(ctx, all...); err != nil {
			return err
		}
	}
	return nil
}

// addBridge starts a bridge, which leads if it is the first one.
func (s *simulation) addBridge(ctx context.Context) error {
	br, err := process.Start(ctx, process.Config{
		Built: s.built, Kubeconfig: s.api.Kubeconfig, Northbound: s.lab.NB.Remote,
		Data: process.OnEtcd(s.etcd.Endpoints()), AnnotateQPS: process.Unlimited,
	}, "--ovn-layout", string(ovn.LayoutNode))
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bridges = append(s.bridges, br)
	return nil
}

// reporters is how many agents report at once.
const reporters = 16

// report reports the chassis of all nodes to the leader, as their agents do.
func (s *simulation) report(ctx context.Context) error {
	var g errgroup.Group
	g.SetLimit(reporters)
	for n := range s.nodes {
		g.Go(func() error {
			address := kube.NodeAddress(n).String()
			status, answer, err := s.bridges[0].Client.Do(ctx, http.MethodPut, "/restconf/config/coe-agent:chassis/node/"+address,
				fmt.Sprintf(`{"node":[{"address":%q,"system-id":%q}]}`, address, kube.Node(n)))
			if err == nil && status/100 != 2 {
				err = fmt.Errorf("report the chassis of node %s: status %d: %s", kube.Node(n), status, answer)
			}
			return err
		})
	}
	return g.Wait()
}

// follow opens the streams of all nodes at the leader.
func (s *simulation) follow() {
	if s.streams == nil {
		var nodes []netip.Addr
		for n := range s.nodes {
			nodes = append(nodes, kube.NodeAddress(n))
		}
		s.streams = agents.New(nodes, nil)
	}
	s.streams.At(s.bridges[0].URL)
}

func (s *simulation) close() error {
	var errs []error
	if s.streams != nil {
		s.streams.Stop()
	}
	for i := len(s.bridges) - 1; i >= 0; i-- { // a standby must not be elected
		errs = append(errs, s.bridges[i].Stop())
	}
	if s.chassis != nil {
		errs = append(errs, s.chassis.stop())
	}
	if s.lab != nil {
		errs = append(errs, s.lab.Close())
	}
	if s.etcd != nil {
		errs = append(errs, s.etcd.Close())
	}
	if s.api != nil {
		errs = append(errs, s.api.Close())
	}
	return errors.Join(errs...)
}
