package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coe-bridge/coe-bridge/test/demo/program"
	"github.com/coe-bridge/coe-bridge/test/demo/screen"
	"github.com/coe-bridge/coe-bridge/test/lab/kubelab"
	"github.com/coe-bridge/coe-bridge/test/lab/odl"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// convergeTimeout bounds how long the cluster may take to follow a change.
const convergeTimeout = time.Minute

// story is the demo under way.
type story struct {
	screen  *screen.Screen
	bin     string
	release odl.Release // empty for OVN
	lab     *kubelab.Lab
}

// hosts says what the nodes are.
func (s *story) hosts() string {
	if s.release == "" {
		return "each a host of OVN"
	}
	return "whose switches OpenDaylight programs"
}

// missing returns the Debian packages that the demo needs and that are not installed.
func (s *story) missing() []string {
	missing := kubelab.Missing()
	if s.release != "" {
		missing = slices.Concat(missing, odl.Missing())
	}
	return missing
}

// tell tells the story.
func (s *story) tell(ctx context.Context) error {
	err := program.Tell(ctx, s.screen, []program.Step{
		{Title: "Look for what the demo needs", Do: s.prepare},
		{Title: "Start Kubernetes: control plane and two nodes, " + s.hosts(), Do: s.startCluster},
		{Title: "Install coe-bridge as docs/kubernetes.md says, and a name server", Do: s.install},
		{Title: "Create two namespaces: a Deployment with a Service, a Pod with probes", Do: s.create},
		{Title: "Look at the pods, and at the Netvirt model", Do: s.show},
		{Title: "Send packets from pod to pod, from pod to node, from node to pod", Do: s.ping},
		{Title: "Fetch a page through the Service, by its name, and by its port of each node", Do: s.fetch},
		{Title: "Reach the API server as kubernetes.default", Do: s.reachAPIServer},
		{Title: "Let a NetworkPolicy choose by a label who reaches the Pod", Do: s.restrict},
		{Title: "Scale the Deployment up, and down", Do: s.scale},
		{Title: "Replace all pods of the Deployment while a client fetches pages", Do: s.roll},
		{Title: "Delete all: the model is empty", Do: s.deleteAll},
	})
	if err != nil {
		return err
	}
	s.sayNext()
	return nil
}

func (s *story) prepare(ctx context.Context) error {
	if err := program.InstallPackages(ctx, s.screen, s.missing); err != nil {
		return err
	}
	if kubelab.Exists(prefix) {
		s.screen.Say("an earlier demo is there: it is removed first")
		if err := kubelab.Cleanup(prefix); err != nil {
			return err
		}
	}
	return s.build(ctx)
}

// build makes what the demo needs and the user's cache does not have. OpenDaylight is downloaded while Kubernetes is compiled.
func (s *story) build(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var installing sync.WaitGroup
	if s.release != "" {
		installing.Go(func() {
			if _, err := odl.Install(ctx, s.release, os.Stdout); err != nil {
				cancel(err)
			}
		})
	}
	if err := kubelab.Build(ctx, os.Stdout); err != nil {
		cancel(err)
	}
	installing.Wait()
	return context.Cause(ctx)
}

func (s *story) startCluster(ctx context.Context) (err error) {
	s.lab, err = kubelab.Start(ctx, kubelab.Config{
		Prefix: prefix, Nodes: []string{"node1", "node2"}, Bin: s.bin, OpenDaylight: s.release, Survive: true, Progress: os.Stdout,
	})
	if err != nil {
		return err
	}
	return s.kubectl(ctx, "get", "nodes", "--output=wide", "--no-headers")
}

func (s *story) install(ctx context.Context) error {
	if err := s.lab.Install(ctx); err != nil {
		return err
	}
	return s.kubectl(ctx, "get", "nodes", "--no-headers")
}

func (s *story) create(ctx context.Context) error {
	if err := s.lab.ApplyManifest(ctx, manifests); err != nil {
		return err
	}
	for _, wait := range [][]string{
		{"rollout", "status", "--namespace=web", "deployment/page", "--timeout=60s"},
		{"wait", "--namespace=shop", "--for=condition=Ready", "pod/till", "--timeout=60s"},
		{"rollout", "status", "--namespace=kube-system", "deployment/coredns", "--timeout=60s"},
	} {
		if _, err := s.lab.Run(ctx, "", wait...); err != nil {
			return err
		}
	}
	s.screen.Say("all pods are ready: kubelet has been answered by all of them")
	return nil
}

// show prints what Kubernetes has beside what the bridge has made of it.
func (s *story) show(ctx context.Context) error {
	pods, err := s.lab.Run(ctx, "", "get", "pods", "--all-namespaces", "--field-selector=metadata.namespace!="+kubelab.Namespace,
		"--output=custom-columns=NAMESPACE:.metadata.namespace,POD:.metadata.name,NODE:.spec.nodeName,IP:.status.podIP")
	if err != nil {
		return err
	}
	interfaces, err := s.lab.Ask(ctx, "get", "interfaces")
	if err != nil {
		return err
	}
	s.screen.Say("%s\n", beside(pods, interfaces))
	elans, err := s.lab.Ask(ctx, "get", "elan-instances")
	if err != nil {
		return err
	}
	vpns, err := s.lab.Ask(ctx, "get", "vpn-instances")
	if err != nil {
		return err
	}
	s.screen.Say("%s", beside(elans, vpns))
	return nil
}

// beside puts a table to the right of another.
func beside(left, right string) string {
	l, r := strings.Split(strings.TrimSpace(left), "\n"), strings.Split(strings.TrimSpace(right), "\n")
	width := 0
	for _, line := range l {
		width = max(width, len(strings.TrimSpace(line)))
	}
	var both strings.Builder
	for i := range max(len(l), len(r)) {
		row := ""
		if i < len(r) {
			row = r[i]
		}
		cell := ""
		if i < len(l) {
			cell = strings.TrimSpace(l[i])
		}
		fmt.Fprintf(&both, "%-*s  | %s\n", width, cell, row)
	}
	return both.String()
}

// pods are the Deployment's pods by their nodes, and the one with probes.
func (s *story) pods(ctx context.Context) (pages map[string][]kubelab.Place, till kubelab.Place, err error) {
	list, err := s.lab.Run(ctx, "", "get", "pods", "--namespace=web", "--no-headers", "--output=custom-columns=N:.spec.nodeName,P:.metadata.name")
	if err != nil {
		return nil, till, err
	}
	pages = map[string][]kubelab.Place{}
	for line := range strings.Lines(list) {
		fields := strings.Fields(line)
		pod, err := s.lab.Pod(ctx, "web", fields[1])
		if err != nil {
			return nil, till, err
		}
		pages[fields[0]] = append(pages[fields[0]], pod)
	}
	for _, n := range s.lab.Nodes {
		if len(pages[n.Name]) < 2 {
			return nil, till, fmt.Errorf("the Deployment is not spread over the nodes: %d pods on %s", len(pages[n.Name]), n.Name)
		}
	}
	till, err = s.lab.Pod(ctx, "shop", "till")
	return pages, till, err
}

func (s *story) ping(ctx context.Context) error {
	pages, till, err := s.pods(ctx)
	if err != nil {
		return err
	}
	here, there := s.lab.Nodes[0], s.lab.Nodes[1]
	a, b, c := pages[here.Name][0], pages[here.Name][1], pages[there.Name][0]
	for _, way := range []struct {
		what     string
		from, to kubelab.Place
	}{
		{"within a node", a, b},
		{"across nodes", a, c},
		{"across namespaces", till, c},
		{"from pod to its node", a, here.Place()},
		{"from pod to the other node", a, there.Place()},
		{"from node to its pod", here.Place(), a},
		{"from node to a pod of the other one", here.Place(), c},
		{"from pod out of the cluster", c, s.lab.Outside()},
	} {
		if err := s.await(ctx, func(ctx context.Context) error { return way.from.Ping(ctx, way.to.Address) }); err != nil {
			return fmt.Errorf("%s: %w", way.what, err)
		}
		s.screen.Say("%s -> %s %s (%s): answered", way.from.Name, way.to.Name, way.to.Address, way.what)
	}
	return nil
}

// fetch fetches the service's page from a pod, and from outside the cluster, until every pod of the service has answered.
func (s *story) fetch(ctx context.Context) error {
	pages, till, err := s.pods(ctx)
	if err != nil {
		return err
	}
	var want []string
	for _, p := range slices.Concat(pages[s.lab.Nodes[0].Name], pages[s.lab.Nodes[1].Name]) {
		_, name, _ := strings.Cut(p.Name, "/")
		want = append(want, name)
	}
	slices.Sort(want)
	if err := s.fetchAll(ctx, till.Name, "http://page.web/hostname", want, s.byName(till)); err != nil {
		return err
	}
	port, err := s.lab.Run(ctx, "", "get", "service", "--namespace=web", "page", "--output=jsonpath={.spec.ports[0].nodePort}")
	if err != nil {
		return err
	}
	for _, n := range s.lab.Nodes {
		url := fmt.Sprintf("http://%s:%s/hostname", n.Address, port)
		get := func(ctx context.Context) (string, error) { return s.lab.Outside().Get(ctx, url) }
		if err := s.fetchAll(ctx, s.lab.Outside().Name, url, want, get); err != nil {
			return err
		}
	}
	return nil
}

// byName returns a function with which a pod fetches the service's page, by the service's name.
func (s *story) byName(pod kubelab.Place) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		return s.lab.Nodes[0].Place().Dial(ctx, pod, "page.web", 80, "hostname")
	}
}

// fetchAll fetches a page until all pods have answered that should.
func (s *story) fetchAll(ctx context.Context, client, url string, want []string, get func(context.Context) (string, error)) error {
	var got []string
	err := s.await(ctx, func(ctx context.Context) error {
		page, err := get(ctx)
		if err != nil {
			return err
		}
		if !slices.Contains(got, page) {
			got = append(got, page)
			slices.Sort(got)
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("got pages of %s, want pages of %s", strings.Join(got, ", "), strings.Join(want, ", "))
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("%s -> %s: %w", client, url, err)
	}
	s.screen.Say("%s -> %s: %s", client, url, strings.Join(got, ", "))
	return nil
}

// reachAPIServer connects to the API server by its name in a pod, and asks it from there
// for its version, by the cluster IP that the name stands for.
func (s *story) reachAPIServer(ctx context.Context) error {
	if err := s.kubectl(ctx, "exec", "--namespace=shop", "till", "--", "/agnhost", "connect", "--timeout=5s", "kubernetes.default:443"); err != nil {
		return err
	}
	till, err := s.lab.Pod(ctx, "shop", "till")
	if err != nil {
		return err
	}
	version, err := s.lab.GetAPI(ctx, till, "/version")
	if err != nil {
		return err
	}
	s.screen.Say("%s -> https://kubernetes.default/version:\n%s", till.Name, version)
	return nil
}

func (s *story) scale(ctx context.Context) error {
	for _, replicas := range []int{8, 4} {
		if _, err := s.lab.Run(ctx, "", "scale", "--namespace=web", "deployment/page", fmt.Sprintf("--replicas=%d", replicas)); err != nil {
			return err
		}
		if err := s.await(ctx, func(ctx context.Context) error { return s.count(ctx, "web:", replicas) }); err != nil {
			return err
		}
		if _, err := s.lab.Run(ctx, "", "rollout", "status", "--namespace=web", "deployment/page", "--timeout=60s"); err != nil {
			return err
		}
		s.screen.Say("%d replicas: as many interfaces in the model, as many ports on the switches", replicas)
	}
	return nil
}

// roll replaces all pods of the Deployment. Meanwhile a pod fetches pages by the service's name, one after the other. None
// must be missing.
func (s *story) roll(ctx context.Context) error {
	till, err := s.lab.Pod(ctx, "shop", "till") // the Deployment still has pods that end
	if err != nil {
		return err
	}
	if _, err := s.lab.Run(ctx, "", "rollout", "restart", "--namespace=web", "deployment/page"); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	rolled := make(chan error, 1)
	go func() {
		_, err := s.lab.Run(ctx, "", "rollout", "status", "--namespace=web", "deployment/page", "--timeout=110s")
		rolled <- err
	}()
	get, pages := s.byName(till), 0
	for {
		if _, err := get(ctx); err != nil {
			return fmt.Errorf("after %d pages: %w", pages, err)
		}
		pages++
		select {
		case err := <-rolled:
			if err == nil {
				s.screen.Say("%s -> http://page.web/hostname: %d pages while all pods were replaced, none is missing", till.Name, pages)
			}
			return err
		default:
		}
	}
}

// count looks that so many interfaces of the model, and ports of the switches, have
// names that begin so.
func (s *story) count(ctx context.Context, prefix string, want int) error {
	interfaces, err := s.lab.Ask(ctx, "get", "interfaces")
	if err != nil {
		return err
	}
	has, ports := 0, 0
	for line := range strings.Lines(interfaces) {
		name, _, _ := strings.Cut(line, " ")
		if strings.Contains(name, ":") && strings.HasPrefix(name, prefix) {
			has++
		}
	}
	for _, n := range s.lab.Nodes {
		all, err := n.Ports(ctx)
		if err != nil {
			return err
		}
		for _, p := range all {
			if strings.HasPrefix(p.Pod, prefix) {
				ports++
			}
		}
	}
	if has != want || ports != want {
		return fmt.Errorf("%d interfaces in the model and %d ports on the switches begin with %q: expected %d", has, ports, prefix, want)
	}
	return nil
}

// deleteAll deletes all that needs a network of pods, the name server too, and starts
// that one again when the model was seen to be empty.
func (s *story) deleteAll(ctx context.Context) error {
	if _, err := s.lab.Run(ctx, "", "delete", "namespace", "web", "shop", "--timeout=90s"); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"scale", "deployment/coredns", "--replicas=0"},
		{"wait", "--for=delete", "pod", "--selector=k8s-app=kube-dns", "--timeout=60s"},
	} {
		if _, err := s.lab.Run(ctx, "", append(args, "--namespace=kube-system")...); err != nil {
			return err
		}
	}
	if err := s.await(ctx, func(ctx context.Context) error { return s.count(ctx, "", 0) }); err != nil {
		return err
	}
	if s.release != "" {
		s.screen.Say("the elan-instances stay until the addresses of their pods can be used again")
	}
	if err := s.await(ctx, s.isEmpty); err != nil {
		return err
	}
	if err := s.show(ctx); err != nil {
		return err
	}
	_, err := s.lab.Run(ctx, "", "scale", "--namespace=kube-system", "deployment/coredns", "--replicas=1")
	return err
}

// isEmpty fails while the model has instances.
func (s *story) isEmpty(ctx context.Context) error {
	for _, what := range []string{"elan-instances", "vpn-instances"} {
		out, err := s.lab.Ask(ctx, "get", what)
		if err != nil {
			return err
		}
		if !strings.HasPrefix(out, "no "+what) {
			return fmt.Errorf("the model still has %s:\n%s", what, out)
		}
	}
	return nil
}

// kubectl shows a command and what it prints.
func (s *story) kubectl(ctx context.Context, args ...string) error {
	out, err := s.lab.Run(ctx, "", args...)
	if err != nil {
		return err
	}
	s.screen.Say("$ kubectl %s\n%s", strings.Join(args, " "), out)
	return nil
}

func (s *story) await(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, convergeTimeout)
	defer cancel()
	return ovnhost.Poll(ctx, f)
}

// sayNext says what to try now.
func (s *story) sayNext() {
	s.screen.Say(`the cluster is left running. Try:
  %[1]s get pods -A -o wide
  %[1]s create deployment web --image=%[3]s --replicas=3 -- /agnhost netexec
  %[2]s status
  %[2]s get interfaces
  %[2]s connectivity test
  make demo-k8s-down`, s.lab.Kubectl(), s.lab.Bridge(), kubelab.TestImage)
}
