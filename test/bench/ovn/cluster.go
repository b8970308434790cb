package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/test/bench/process"
	"github.com/coe-bridge/coe-bridge/test/lab/child"
	"github.com/coe-bridge/coe-bridge/test/lab/kube"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
	"github.com/coe-bridge/coe-bridge/test/lab/synthapi"
)

// settleLimit bounds the time in which OVN does all its work.
const settleLimit = 10 * time.Minute

// spec describes a cluster. Its first pods are there from the start, on nodes without a real host. Further ones come to the hosts of
// the lab, or to any node if the lab has none.
type spec struct {
	layout ovn.Layout
	load   kube.PodLoad
	hosts  int
	// annotateQPS is the bridge's limit of annotations per second; empty for none.
	annotateQPS string
}

// cluster is a synthetic cluster with a real OVN and a bridge.
type cluster struct {
	spec
	first  int // number of the first further pod
	bench  *bench
	api    *synthapi.API
	pods   *synthapi.Resource[corev1.Pod]
	dir    string // of the bridge
	lab    *ovnhost.Lab
	bridge *process.Bridge // nil while it is stopped
}

// newCluster starts a cluster, and waits until OVN has the first pods. northd computes only when all their rows are written.
func (b *bench) newCluster(ctx context.Context, s spec) (_ *cluster, err error) {
	c := &cluster{spec: s, first: s.load.Count, bench: b}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
		}
	}()
	if err := c.serve(); err != nil {
		return nil, err
	}
	var hosts []string
	for i := range s.hosts {
		hosts = append(hosts, kube.Node(s.load.Nodes+i))
	}
	if c.lab, err = ovnhost.Start(ctx, ovnhost.Config{Prefix: "bench" + strconv.Itoa(os.Getpid()), Hosts: hosts}); err != nil {
		return nil, err
	}
	if err := c.lab.Northd.Stop(); err != nil {
		return nil, err
	}
	b.Say("layout %s: choosing and writing %d pods", s.layout, s.load.Count)
	if err := c.startBridge(ctx); err != nil {
		return nil, err
	}
	if err := c.lab.Northd.Cont(); err != nil {
		return nil, err
	}
	b.Say("layout %s: OVN computes", s.layout)
	return c, c.sync(ctx)
}

// serve serves the objects of Kubernetes.
func (c *cluster) serve() (err error) {
	if c.dir, err = c.bench.Folder("cluster"); err != nil {
		return err
	}
	if c.api, err = synthapi.Serve(c.dir); err != nil {
		return err
	}
	synthapi.Add(c.api, synthapi.Namespaces, c.load.Namespaces, synthapi.Namespace)
	synthapi.Add(c.api, synthapi.Nodes, c.load.Nodes+c.hosts, synthapi.Node)
	c.pods = synthapi.Add(c.api, synthapi.Pods, c.load.Count, c.pod)
	synthapi.Add(c.api, synthapi.Policies, 0, nil)
	synthapi.Add(c.api, synthapi.ServiceCIDRs, 0, nil)
	synthapi.Add(c.api, synthapi.Services, 0, nil)
	synthapi.Add(c.api, synthapi.EndpointSlices, 0, nil)
	return nil
}

func (c *cluster) close() error {
	var errs []error
	if c.bridge != nil {
		errs = append(errs, c.bridge.Stop())
	}
	if c.lab != nil {
		errs = append(errs, c.lab.Close())
	}
	if c.api != nil {
		errs = append(errs, c.api.Close())
	}
	return errors.Join(errs...)
}

func (c *cluster) pod(i int) corev1.Pod {
	p := c.api.Pod(c.load, i)
	if i >= c.first && c.hosts > 0 {
		p.Spec.NodeName = kube.Node(c.load.Nodes + i%c.hosts)
	}
	return p
}

// portOf returns the name of a pod's switch port.
func (c *cluster) portOf(i int) string {
	p := c.pod(i)
	return netvirt.InterfaceName(p.Namespace, p.Name, "", true)
}

// startBridge starts the bridge, and waits until it has written the first pods and watches further ones.
func (c *cluster) startBridge(ctx context.Context) (err error) {
	if c.bridge, err = c.startAt(ctx, c.lab.NB.Remote); err != nil {
		return err
	}
	if _, err := c.bridge.AwaitSync(ctx, c.load.Count); err != nil {
		return err
	}
	if err := c.api.AwaitAnnotations(ctx, c.load.Count); err != nil {
		return err
	}
	return c.pods.AwaitWatch(ctx)
}

// startAt starts a bridge with a northbound database.
func (c *cluster) startAt(ctx context.Context, northbound string) (*process.Bridge, error) {
	return process.Start(ctx, process.Config{
		Built: c.bench.built, Kubeconfig: c.api.Kubeconfig, Northbound: northbound,
		Data: process.OnFolder(c.dir), AnnotateQPS: cmp.Or(c.annotateQPS, process.Unlimited),
	}, "--ovn-layout", string(c.layout))
}

func (c *cluster) stopBridge() error {
	br := c.bridge
	c.bridge = nil
	return br.Stop()
}

// sync waits until OVN has computed everything.
func (c *cluster) sync(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	if c.hosts > 0 {
		return ovnhost.Poll(ctx, c.lab.Sync) // one command has a minute
	}
	_, err := c.lab.NBCtl(ctx, "--wait=sb", "sync")
	return err
}

// await waits until the southbound database has some further pods.
func (c *cluster) await(ctx context.Context, further int) error {
	ctx, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	last := c.portOf(c.load.Count)
	if further > 0 {
		last = c.portOf(c.load.Count + further - 1)
	}
	err := ovnhost.Poll(ctx, func(ctx context.Context) error {
		out, err := c.lab.SBCtl(ctx, "--bare", "--columns=_uuid", "find", "Port_Binding", fmt.Sprintf("logical_port=%q", last))
		if err == nil && (strings.TrimSpace(out) != "") != (further > 0) {
			err = errors.New("northd has not translated it")
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("wait for port %s: %w", last, err)
	}
	return nil
}

// flows returns the number of logical flows.
func (c *cluster) flows(ctx context.Context) (int, error) {
	out, err := c.lab.SBCtl(ctx, "--bare", "--columns=_uuid", "list", "Logical_Flow")
	return len(strings.Fields(out)), err
}

// processorTime returns the processor time of northd, which has no work left.
func (c *cluster) processorTime(ctx context.Context) (time.Duration, error) {
	if _, err := c.lab.NorthdCtl(ctx, "inc-engine/show-stats"); err != nil { // between two computations
		return 0, err
	}
	pid, err := c.lab.Northd.PID()
	if err != nil {
		return 0, err
	}
	own, _, err := child.ProcessorTime(pid)
	return own, err
}
