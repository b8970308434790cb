package agent_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// outside is an address beyond the nodes, and router the underlay's way there.
const (
	outside = "203.0.113.5"
	router  = "172.31.99.1"
)

// withOutside puts an address beyond the nodes, which all of them have a route to.
func (w *world) withOutside() {
	w.t.Helper()
	w.ip("central", "addr", "replace", router+"/24", "dev", "underlay")
	w.ip("central", "addr", "add", outside+"/32", "dev", "lo")
	for host := range w.agents {
		w.ip(host, "route", "replace", "default", "via", router)
	}
}

func (w *world) ip(namespace string, args ...string) string {
	w.t.Helper()
	out, err := w.lab.Exec(w.t.Context(), namespace, append([]string{"ip"}, args...)...)
	require.NoError(w.t, err)
	return out
}

// who answers with its own name, and the address by which it sees who asks.
func (w *world) who(namespace, name string) {
	w.t.Helper()
	require.NoError(w.t, w.lab.Serve(namespace, 8080, http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		_, _ = io.WriteString(out, name+" "+host)
	})))
}

// ask asks who from a namespace.
func (w *world) ask(from string, to string, port int) (string, error) {
	return w.lab.HTTPGet(w.t.Context(), from, "http://"+net.JoinHostPort(to, strconv.Itoa(port)))
}

// seen waits until who answers as it should.
func (w *world) seen(from, to string, port int, want ...string) {
	w.t.Helper()
	await(w.t, fmt.Sprintf("%s asks %s", from, to), func() error {
		got, err := w.ask(from, to, port)
		if err == nil && !slices.Contains(want, got) {
			err = fmt.Errorf("answer %q, want one of %q", got, want)
		}
		return err
	})
}

// management is the address of a node's management port, and what stands for the node
// before those who serve it.
func (w *world) management(host string) (address, service netip.Addr) {
	w.t.Helper()
	await(w.t, host+" has its address", func() error {
		out, err := w.lab.Exec(w.t.Context(), host, "ip", "-4", "-o", "addr", "show", "dev", "coe0")
		if err != nil {
			return err
		}
		fields := strings.Fields(out)
		i := slices.Index(fields, "inet")
		if i < 0 {
			return fmt.Errorf("no address: %s", out)
		}
		address = netip.MustParsePrefix(fields[i+1] + "/32"[len("/32")*strings.Count(fields[i+1], "/"):]).Addr()
		return nil
	})
	return address, address.Next()
}

// service posts a service with its endpoints.
func (w *world) service(n int, address string, endpoints ...string) {
	w.t.Helper()
	var list []string
	for _, e := range endpoints {
		list = append(list, fmt.Sprintf(`{"ip-address":%q}`, e))
	}
	w.put("service:service-information/services/"+uid("s", n), fmt.Sprintf(
		`{"services":[{"uid":%q,"name":"s%d","network-NS":"default","cluster-ip-address":%q,"service-ports":[{"port":80,"target-port":"8080"}]}]}`,
		uid("s", n), n, address))
	w.put("service:endpoints-info/endpoints/"+uid("e", n), fmt.Sprintf(
		`{"endpoints":[{"uid":%q,"name":"s%d","network-NS":"default","endpoint-addresses":[%s],"endpoint-ports":[{"port":8080}]}]}`,
		uid("e", n), n, strings.Join(list, ",")))
}

// joined is two hosts that are joined with the network, a pod on each, and an
// address beyond; every one of them answers who.
func joined(t *testing.T) (w *world, pods map[string]*sandbox) {
	w = newWorld(t, patient, "host1", "host2")
	w.withOutside()
	pods = map[string]*sandbox{}
	for i, host := range []string{"host1", "host2"} {
		p := w.pod(host, i, "default", "pod-"+host)
		p.mustAdd()
		pods[host] = p
		w.who(p.inLab(), p.name)
		w.who(host, host)
	}
	w.who("central", "outside")
	return w, pods
}

// TestNode: nodes and pods reach each other without translation, the pods of every
// node what is beyond it as the node, and nodes and pods every service.
func TestNode(t *testing.T) {
	w, pods := joined(t)
	for _, host := range []string{"host1", "host2"} {
		management, _ := w.management(host)
		for _, to := range pods {
			w.seen(host, to.address.String(), 8080, to.name+" "+management.String())
		}
		p := pods[host]
		for _, to := range []string{"host1", "host2"} {
			w.seen(p.inLab(), w.address(to), 8080, to+" "+p.address.String())
			other, _ := w.management(to)
			w.seen(p.inLab(), other.String(), 8080, to+" "+p.address.String())
		}
		w.seen(p.inLab(), outside, 8080, "outside "+w.address(host))
	}
	w.services(pods)
}

func (w *world) services(pods map[string]*sandbox) {
	w.t.Helper()
	w.service(1, "10.96.0.10", pods["host1"].address.String(), pods["host2"].address.String())
	w.service(2, "10.96.0.11", w.address("host1"))
	w.service(3, "10.96.0.12", outside)
	for _, host := range []string{"host1", "host2"} {
		_, as := w.management(host)
		w.seen(host, "10.96.0.10", 80, "pod-host1 "+as.String(), "pod-host2 "+as.String())
		w.seen(host, "10.96.0.11", 80, "host1 "+as.String())
		w.seen(host, "10.96.0.12", 80, "outside "+w.address(host))
		p := pods[host]
		w.seen(p.inLab(), "10.96.0.11", 80, "host1 "+p.address.String())
		w.seen(p.inLab(), "10.96.0.12", 80, "outside "+w.address(host))
	}
}

var _ = context.Background
