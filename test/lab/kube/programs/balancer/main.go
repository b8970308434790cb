// Command balancer is a cloud with a load balancer, for tests: it gives an address to each service of type LoadBalancer, and
// its network namespace is a router that leads packets for the address to the nodes. Packets to a service with
// externalTrafficPolicy Local go to the nodes that answer its health checks. It runs until it is stopped. Its routes end
// with the namespace.
//
// Kubernetes' own controller of services chooses the nodes, and keeps finalizers and events.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/controllers/service"
	"k8s.io/component-base/featuregate"
	controllersmetrics "k8s.io/component-base/metrics/prometheus/controllers"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "balancer:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	kubeconfig := flag.String("kubeconfig", "", "file with the access to the API server")
	text := flag.String("addresses", "", "prefix of the addresses of services")
	from := flag.String("source", "", "address from which its network namespace sends to services")
	flag.Parse()
	source, err := netip.ParseAddr(*from)
	if err != nil {
		return fmt.Errorf("--source: %w", err)
	}
	addresses, err := netip.ParsePrefix(*text)
	if err != nil {
		return fmt.Errorf("--addresses: %w", err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	b := newBalancer(addresses, source)
	if err := spread(); err != nil {
		return err
	}
	shared := informers.NewSharedInformerFactory(client, 0)
	c, err := service.New(cloud{balancer: b}, client, shared.Core().V1().Services(), shared.Core().V1().Nodes(), "test", featuregate.NewFeatureGate())
	if err != nil {
		return err
	}
	shared.Start(ctx.Done())
	go c.Run(ctx, workers, controllersmetrics.NewControllerManagerMetrics("balancer"))
	err = b.route(ctx)
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// workers is how many services the controller handles at a time.
const workers = 4

// cloud has a load balancer, and nothing else.
type cloud struct {
	cloudprovider.Interface // nil: the controller of services calls only the methods below

	balancer *balancer
}

func (c cloud) LoadBalancer() (cloudprovider.LoadBalancer, bool) { return c.balancer, true }
func (c cloud) HasClusterID() bool                               { return true }
func (c cloud) ProviderName() string                             { return "test" }
