package agent_test

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cni/agent"
)

// TestUnknownNodePortInProcess: a port of the node that OpenDaylight does not program, although it programs others, is replaced by a new one.
func TestUnknownNodePortInProcess(t *testing.T) {
	t.Parallel()
	w, _, a := managedHost(t, ledByNode, "10.42.0.7")
	_, err := w.lab.Host("host1").VSCtl(t.Context(), "set-controller", "br-int", "tcp:"+controllerAt)
	require.NoError(t, err)
	socket := filepath.Join(w.lab.Host("host1").Dir, "br-int.mgmt")
	a.joins(func(ctx context.Context) (map[uint32]bool, error) { return agent.Programmed(ctx, socket) })
	var first string
	number := func() (now string, err error) { return w.portNumber("node:172.31.99.11:management") }
	await(t, "the node has its port", func() (err error) {
		first, err = number()
		return err
	})
	w.program(socket, "4000") // OpenDaylight programs ports
	await(t, "the port is replaced", func() error {
		now, err := number()
		if err == nil && now == first {
			err = fmt.Errorf("the port has number %s still", now)
		}
		return err
	})
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

// program gives a port of a bridge a tag, as OpenDaylight does.
func (w *world) program(socket, number string) {
	w.t.Helper()
	flow := "table=0,in_port=" + number + ",actions=write_metadata:0x90000000000/0xffffff0000000001,goto_table:17"
	out, err := exec.CommandContext(w.t.Context(), "ovs-ofctl", "-O", "OpenFlow13", "add-flow", "unix:"+socket, flow).CombinedOutput()
	require.NoError(w.t, err, "%s", out)
}
