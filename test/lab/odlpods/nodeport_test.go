package odlpods_test

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cni/openflow"
	"github.com/coe-bridge/coe-bridge/test/lab/odl"
	"github.com/coe-bridge/coe-bridge/test/lab/odlpods"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// testNodePortReplaced deletes the flow of the port of a node in an elan-instance from a switch. That is how a port looks that OpenDaylight
// has left out of its elan-instance. The agent looks when a pod is added, and replaces this port, and no other port of the node.
func (w *world) testNodePortReplaced() {
	host := w.lab.Host("host1")
	for _, h := range w.lab.Hosts {
		w.led(h)
	}
	before := w.led(host)
	const web = "node:172.31.99.11:port:web"
	tables, err := w.lab.Controller.OpenFlow(w.t.Context(), host, "dump-flows", fmt.Sprintf("table=0,in_port=%d", before[web]))
	require.NoError(w.t, err)
	tag := regexp.MustCompile(`write_metadata:0x([0-9a-f]+)0000000000/`).FindStringSubmatch(tables)
	require.NotNil(w.t, tag, tables)
	tables, err = w.lab.Controller.OpenFlow(w.t.Context(), host, "dump-flows", "table=51")
	require.NoError(w.t, err)
	flow := regexp.MustCompile(`(metadata=\S+,dl_dst=\S+) actions=load:0x` + tag[1] + `00->NXM_NX_REG6`).FindStringSubmatch(tables)
	require.NotNil(w.t, flow, tables)
	_, err = w.lab.Exec(w.t.Context(), host.Name, "ovs-ofctl", "-O", "OpenFlow13", "del-flows", "unix:"+filepath.Join(host.Dir, odl.Bridge+".mgmt"), "table=51,"+flow[1])
	require.NoError(w.t, err)
	require.NotContains(w.t, w.programmed(host), before[web])

	p := pod(70, "web", "later", host.Name)
	require.NoError(w.t, w.lab.ApplyPods(w.t.Context(), p))
	plugged, err := w.lab.Retry(w.t.Context(), p, func(err error) { w.t.Log(err) })
	require.NoError(w.t, err)
	after := w.led(host)
	require.NotEqual(w.t, before[web], after[web])
	delete(before, web)
	delete(after, web)
	require.Equal(w.t, before, after)
	w.serve(p.String(), podPort)
	by, _ := w.ask(host.Name, netip.AddrPortFrom(plugged.Address, podPort))
	require.Equal(w.t, p.String(), by)
	w.both(p.String(), page, []string{w.pods[0].String(), w.pods[2].String()})
	require.NoError(w.t, w.lab.Unplug(w.t.Context(), p))
	require.NoError(w.t, w.lab.DeletePod(w.t.Context(), p))
}

// led waits until OpenDaylight has programmed all ports of a node, and returns the OpenFlow numbers of the ports by their iface-ids.
func (w *world) led(h *ovnhost.Host) (ports map[string]uint32) {
	w.t.Helper()
	require.NoError(w.t, odlpods.Await(w.t.Context(), func(ctx context.Context) error {
		rows, err := h.VSCtl(ctx, "--bare", "--columns=ofport,external_ids", "find", "Interface", "external_ids:coe-node=management")
		if err != nil {
			return err
		}
		ports = map[string]uint32{}
		for _, row := range regexp.MustCompile(`(?m)^([0-9]+)\n.*iface-id="?(node:[^ "\n]+)`).FindAllStringSubmatch(rows, -1) {
			number, err := strconv.ParseUint(row[1], 10, 16)
			if err != nil {
				return err
			}
			ports[row[2]] = uint32(number)
		}
		if len(ports) < 2 || len(ports) != strings.Count(rows, "coe-node=") {
			return fmt.Errorf("host %s has other ports: %s", h.Name, rows)
		}
		complete := w.programmed(h)
		for port, number := range ports {
			if !slices.Contains(complete, number) {
				return fmt.Errorf("host %s: port %d of %s is not programmed: %v", h.Name, number, port, complete)
			}
		}
		return nil
	}))
	return ports
}

// programmed returns the OpenFlow numbers of the ports of a host that OpenDaylight has programmed.
func (w *world) programmed(h *ovnhost.Host) (numbers []uint32) {
	w.t.Helper()
	c, err := openflow.Dial(w.t.Context(), filepath.Join(h.Dir, odl.Bridge+".mgmt"))
	require.NoError(w.t, err)
	defer c.Close()
	ports, err := c.Ports(w.t.Context(), nil)
	require.NoError(w.t, err)
	for number, at := range ports {
		if at >= openflow.Complete {
			numbers = append(numbers, number)
		}
	}
	return numbers
}
