// Command dns is the name server of the lab's clusters: CoreDNS with the plugins in their
// configuration and in the tests of Kubernetes.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/cache"      // caches answers
	_ "github.com/coredns/coredns/plugin/errors"     // logs errors
	_ "github.com/coredns/coredns/plugin/forward"    // asks other servers
	_ "github.com/coredns/coredns/plugin/health"     // for the liveness probe
	_ "github.com/coredns/coredns/plugin/hosts"      // names from a test
	_ "github.com/coredns/coredns/plugin/kubernetes" // services and pods
	_ "github.com/coredns/coredns/plugin/log"        // logs queries
	_ "github.com/coredns/coredns/plugin/ready"      // for the readiness probe
)

func main() {
	dnsserver.Directives = []string{"health", "ready", "log", "errors", "cache", "hosts", "kubernetes", "forward"}
	coremain.Run()
}
