package agent_test

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cni/agent"
	"github.com/coe-bridge/coe-bridge/cni/call"
	"github.com/coe-bridge/coe-bridge/cni/openflow"
)

// TestUnprogrammedNodePortInProcess: a port of the node that OpenDaylight does not program, although it programs others, is replaced by a new one:
// one without a tag, and one with a tag to which its elan-instance leads no packets. A port that has both stays.
func TestUnprogrammedNodePortInProcess(t *testing.T) {
	t.Parallel()
	const management, web = "node:172.31.99.11:management", "node:172.31.99.11:port:web"
	for name, program := range map[string]func(w *world, socket string, numbers map[string]string){
		"it has no tag": func(w *world, socket string, numbers map[string]string) {
			w.program(socket, numbers[management])
		},
		"no flow leads to it": func(w *world, socket string, numbers map[string]string) {
			w.program(socket, numbers[management])
			w.tag(socket, numbers[web])
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, bridge, a := managedHost(t, ledByNode, "10.42.0.7")
			_, err := w.lab.Host("host1").VSCtl(t.Context(), "set-controller", "br-int", "tcp:"+controllerAt)
			require.NoError(t, err)
			socket := filepath.Join(w.lab.Host("host1").Dir, "br-int.mgmt")
			begin := a.joinsUnprogrammed(socket)
			numbers := map[string]string{}
			for _, port := range []string{management, web} {
				await(t, "the node has its port "+port, func() (err error) {
					numbers[port], err = w.portNumber(port)
					return err
				})
			}
			program(w, socket, numbers)
			begin()
			bridge.serve(2, ledByNode, "10.42.0.8") // the node looks again
			await(t, "the port is replaced", func() error {
				now, err := w.portNumber(web)
				if err == nil && now == numbers[web] {
					err = fmt.Errorf("the port has number %s still", now)
				}
				return err
			})
			now, err := w.portNumber(management)
			require.NoError(t, err)
			require.Equal(t, numbers[management], now, "a programmed port is replaced")
		})
	}
}

// TestUnreachedPodInProcess: the port of a running pod to which a route from the switch leads, and none from tunnels, is replaced by a new one, if
// tunnels lead to another port.
// The pod keeps its link.
func TestUnreachedPodInProcess(t *testing.T) {
	t.Parallel()
	const management, web, front = "node:172.31.99.11:management", "node:172.31.99.11:port:web", "web:front"
	w, bridge, a := managedHost(t, ledByNode, "10.42.0.7")
	host := w.lab.Host("host1")
	_, err := host.VSCtl(t.Context(), "set-controller", "br-int", "tcp:"+controllerAt)
	require.NoError(t, err)
	socket := filepath.Join(host.Dir, "br-int.mgmt")
	begin := a.joinsUnprogrammed(socket)
	numbers := map[string]string{}
	number := func(port string) {
		await(t, "the switch has port "+port, func() (err error) {
			numbers[port], err = w.portNumber(port)
			return err
		})
	}
	number(management)
	number(web)
	bridge.unconfirmed = true
	bridge.serve(2, ledByNode, "10.42.0.7")
	added := make(chan *types.Error, 1)
	go func() { added <- a.call(t.Context(), call.Add, w.sandbox("host1", "web", "front", "u1", "sandbox1")) }()
	number(front)
	bridge.unconfirmed = false
	bridge.serve(3, ledByNode, "10.42.0.7")
	require.Nil(t, <-added)
	link := func() string { return w.onHost1("cat /sys/class/net/tap0a1b2c3d-4e/ifindex") }
	was := link()

	for _, number := range numbers {
		w.program(socket, number)
	}
	w.addGroup(socket, 150001, numbers[front])
	w.addFlow(socket, "table=21,priority=42,ip,nw_dst=10.42.0.2,actions=group:150001")
	w.addGroup(socket, 150002, numbers[management])
	w.addFlow(socket, "table=36,priority=5,tun_id=0x186a1,actions=group:150002")
	begin()
	bridge.serve(4, ledByNode, "10.42.0.8") // the node looks again
	await(t, "the port is replaced", func() error {
		now, err := w.portNumber(front)
		if err == nil && now == numbers[front] {
			err = fmt.Errorf("the port has number %s still", now)
		}
		return err
	})
	require.Equal(t, was, link())
	for _, port := range []string{management, web} {
		now, err := w.portNumber(port)
		require.NoError(t, err)
		require.Equal(t, numbers[port], now, "a programmed port is replaced")
	}
}

// portNumber returns the OpenFlow number of the port with an iface-id on host1.
func (w *world) portNumber(iface string) (string, error) {
	out, err := w.lab.Host("host1").VSCtl(w.t.Context(), "--bare", "--columns=ofport", "find", "Interface", fmt.Sprintf("external_ids:iface-id=%q", iface))
	number := strings.TrimSpace(out)
	if err == nil && (number == "" || number == "-1" || number == "[]") {
		err = fmt.Errorf("interface %s has no open port", iface)
	}
	return number, err
}

// joinsUnprogrammed is joins with a switch on which OpenDaylight knows no port before begin is called.
func (a *inProcess) joinsUnprogrammed(socket string) (begin func()) {
	var begun atomic.Bool
	a.joins(func(ctx context.Context, addresses openflow.Addresses) (map[uint32]openflow.Stage, error) {
		if !begun.Load() {
			return nil, nil
		}
		return agent.Programmed(ctx, socket, addresses)
	})
	return func() { begun.Store(true) }
}

// tag gives a port of a bridge a tag, as OpenDaylight does: its OpenFlow number.
func (w *world) tag(socket, number string) {
	w.t.Helper()
	w.addFlow(socket, fmt.Sprintf("table=0,in_port=%s,actions=write_metadata:%#x/0xffffff0000000001,goto_table:17", number, w.number(number)<<40))
}

// program lets an elan-instance also lead packets to the port.
func (w *world) program(socket, number string) {
	w.t.Helper()
	w.tag(socket, number)
	n := w.number(number)
	w.addFlow(socket, fmt.Sprintf("table=51,metadata=0x138c000000/0xffff000000,dl_dst=0a:58:00:00:%02x:%02x,actions=load:%#x->NXM_NX_REG6[],resubmit(,220)",
		n>>8, n&0xff, n<<8))
}

func (w *world) number(text string) uint64 {
	w.t.Helper()
	n, err := strconv.ParseUint(text, 10, 16)
	require.NoError(w.t, err)
	return n
}

// addGroup adds the group of a route to the port of a bridge.
func (w *world) addGroup(socket string, group int, number string) {
	w.t.Helper()
	out, err := exec.CommandContext(w.t.Context(), "ovs-ofctl", "-O", "OpenFlow13", "add-group", "unix:"+socket,
		fmt.Sprintf("group_id=%d,type=all,bucket=actions=load:%#x->NXM_NX_REG6[],resubmit(,220)", group, w.number(number)<<8)).CombinedOutput()
	require.NoError(w.t, err, "%s", out)
}

func (w *world) addFlow(socket, flow string) {
	w.t.Helper()
	out, err := exec.CommandContext(w.t.Context(), "ovs-ofctl", "-O", "OpenFlow13", "add-flow", "unix:"+socket, flow).CombinedOutput()
	require.NoError(w.t, err, "%s", out)
}
