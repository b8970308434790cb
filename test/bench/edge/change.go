package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coe-bridge/coe-bridge/test/bench/figures"
	"github.com/coe-bridge/coe-bridge/test/lab/kube"
)

const (
	backgroundServices   = 5000
	backgroundEndpoints  = 10
	backgroundNamespaces = 50
	changes              = 50 // by coe-bridge
	proxyChanges         = 20 // by kube-proxy: with many services each takes seconds
	changeBound          = 100 * time.Millisecond
	// changeLimit bounds the time until a change is in force.
	changeLimit = 2 * time.Minute
)

// measureChange moves the only endpoint of a service from one pod on the asked node to another one. The
// measured time is from the answer of the API server until a new connection from outside reaches the other
// pod. It does so with few services, and with 5,000 services of 10 endpoints.
func measureChange(ctx context.Context, c *cluster) (all []figures.Figure, err error) {
	kinds := []struct {
		name   string
		ways   [2]*way
		policy corev1.ServiceExternalTrafficPolicy
	}{
		{"Cluster", c.ways("change", 81), corev1.ServiceExternalTrafficPolicyCluster},
		{"Local", c.ways("change-local", 82), corev1.ServiceExternalTrafficPolicyLocal},
	}
	for _, k := range kinds {
		for _, w := range k.ways {
			if err := c.expose(ctx, newService(w.service, k.policy, w.at.Port()), c.newSlice(w.service, "a1")); err != nil {
				return nil, err
			}
		}
	}
	few := map[string]time.Duration{}
	for _, many := range []bool{false, true} {
		services := "few services"
		if many {
			services = fmt.Sprintf("%d services with %d endpoints", backgroundServices, backgroundEndpoints)
			// kube-proxy would slow the creation of services down.
			if err := errors.Join(c.use(ctx, kinds[0].ways[0]), c.fill(ctx)); err != nil {
				return nil, err
			}
		}
		for _, k := range kinds {
			var p99 [2]time.Duration
			for i, took := range c.changeAll(ctx, k.ways) {
				if took.err != nil {
					return nil, fmt.Errorf("%s, %s: %w", services, k.ways[i].name, took.err)
				}
				p99[i] = figures.Percentile(took.times, 99)
				c.Say("%s, %s, %s: p50 %s, p99 %s", services, k.name, k.ways[i].name, figures.Short(figures.Percentile(took.times, 50)), figures.Short(p99[i]))
			}
			if !many {
				few[k.name] = p99[0]
				continue
			}
			f := figures.AtMost(fmt.Sprintf("an endpoint of a %s node port changes, beside %s: until in force, p99", k.name, services), p99[0], changeBound)
			f.Measured += fmt.Sprintf(" (with few services %s, kube-proxy %s)", figures.Short(few[k.name]), figures.Short(p99[1]))
			all = append(all, f)
		}
	}
	return all, nil
}

// fill creates services in other namespaces, and waits until changes are in force again.
func (c *cluster) fill(ctx context.Context) error {
	client := c.lab.Client()
	for i := range backgroundNamespaces {
		meta := metav1.ObjectMeta{Name: kube.Namespace(i)}
		if _, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: meta}, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	load := kube.ServiceLoad{Count: backgroundServices, Endpoints: backgroundEndpoints, Namespaces: backgroundNamespaces}
	c.Say("creating %d services", load.Count)
	_, err := kube.MakeServices(ctx, client, load)
	return err
}

// took is how long the changes of a way took.
type took struct {
	times []time.Duration // sorted
	err   error
}

// changeAll moves the endpoints of two ways, one after the other.
func (c *cluster) changeAll(ctx context.Context, ways [2]*way) (all [2]took) {
	for i, w := range ways {
		all[i].err = c.changeOf(ctx, w, &all[i].times)
		slices.Sort(all[i].times)
	}
	return all
}

func (c *cluster) changeOf(ctx context.Context, w *way, times *[]time.Duration) error {
	if err := c.move(ctx, w.service, pods[0].name); err != nil {
		return err
	}
	if err := c.open(ctx, w, pods[0].name); err != nil {
		return err
	}
	count := changes
	if w.proxy {
		count = proxyChanges
	}
	for n := range count {
		err := c.outside(func() error {
			at, err := c.change(ctx, w, pods[(n+1)%2].name)
			*times = append(*times, at)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// change moves the endpoint of a way to a pod. It returns the time until the pod answers. It runs outside
// the cluster, except for the request to the API server.
func (c *cluster) change(ctx context.Context, w *way, pod string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, changeLimit)
	defer cancel()
	if err := c.move(ctx, w.service, pod); err != nil {
		return 0, err
	}
	begun := time.Now()
	at, err := awaitPod(ctx, w.at, pod)
	return at.Sub(begun), err
}
