package hostile_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cni/uplink"
	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
	"github.com/coe-bridge/coe-bridge/test/lab/etcd"
	"github.com/coe-bridge/coe-bridge/test/lab/ovsdb"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

const (
	flapRounds = 6
	flapWithin = patience.Patience
)

// TestNorthboundServerFlaps kills the northbound server, starts it, and kills it again as soon as the
// bridge reports the connection. The bridge reports each loss of the server, without waiting for the
// resync interval.
func TestNorthboundServerFlaps(t *testing.T) {
	server := ovsdb.Start(t)
	b := bridgetest.Start(t, bridgetest.OVN(server.Endpoint()))
	connected := func(want bool) func() error {
		return func() error {
			if b.Status().Backend.Connected != want {
				return errors.New("the status does not report it")
			}
			return nil
		}
	}
	b.AwaitSync(flapWithin)
	for range flapRounds {
		server.Kill(t)
		bridgetest.Await(t, time.Millisecond, flapWithin, "the status says that the server is gone", connected(false))
		server.Restart(t)
		bridgetest.Await(t, time.Millisecond, flapWithin, "the status says that the server is back", connected(true))
	}
	b.AwaitSync(flapWithin)
	require.Empty(t, b.Status().Problems)
}

const (
	flapPool    = "/restconf/config/dhcp_allocation_pool:dhcp_allocation_pool/network/default"
	flapSubnet  = `{"network":[{"network-id":"default","allocation-pool":[{"subnet":"10.42.0.0/16","gateway":"10.42.0.1"}]}]}`
	flapAddress = "192.168.33.11"
)

func flapUID(i int) string { return fmt.Sprintf("8f1d0a4e-1c2b-4f53-9a59-93f2ce1d%04d", i) }

// flapPut repeats the write of an entry until the bridge has accepted it.
func flapPut(t *testing.T, p *bridgetest.Process, path, body string) {
	t.Helper()
	bridgetest.Await(t, 20*time.Millisecond, flapWithin, "PUT "+path, func() error {
		status, answer, err := p.Client().Do(t.Context(), http.MethodPut, path, body)
		if err == nil && status/100 != 2 {
			err = fmt.Errorf("%d %s", status, answer)
		}
		return err
	})
}

func flapPutPod(t *testing.T, p *bridgetest.Process, i int) {
	t.Helper()
	flapPut(t, p, "/restconf/config/pod:coe/pods/"+flapUID(i), fmt.Sprintf(
		`{"pods":[{"uid":%q,"name":"web-%d","network-NS":"shop","host-ip-address":%q,"interface":[{"uid":%q}]}]}`, flapUID(i), i, flapAddress, flapUID(i)))
}

// TestEtcdFlaps kills etcd as soon as a replica has a write that was made at the other one. It repeats
// this. Both replicas get each write, and there is a leader.
func TestEtcdFlaps(t *testing.T) {
	cluster, err := etcd.Run(t.Context(), 1)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cluster.Close()) })
	var replicas []*bridgetest.Process
	for range 2 {
		replicas = append(replicas, bridgetest.Serve(t, "--listen", "127.0.0.1:0", "--etcd-endpoints", strings.Join(cluster.Endpoints(), ",")))
	}
	flapPut(t, replicas[0], flapPool, flapSubnet)
	for i := range 4 {
		flapPutPod(t, replicas[i%2], i)
		for _, r := range replicas {
			bridgetest.Await(t, time.Millisecond, flapWithin, "a replica has the pod", func() error {
				found, err := r.Client().Read(t.Context(), "config/pod:coe/pods/"+flapUID(i), new(any))
				if err == nil && !found {
					err = errors.New("the replica does not have the pod")
				}
				return err
			})
		}
		cluster.Members[0].Kill()
		require.NoError(t, cluster.Members[0].Start())
	}
	bridgetest.Await(t, 20*time.Millisecond, flapWithin, "one replica leads, and chooses addresses", func() error {
		for i := range 4 {
			found, err := replicas[0].Client().Read(t.Context(), "operational/elan:elan-interfaces/elan-interface/shop:web-"+fmt.Sprint(i), new(any))
			other, otherErr := replicas[1].Client().Read(t.Context(), "operational/elan:elan-interfaces/elan-interface/shop:web-"+fmt.Sprint(i), new(any))
			if err := errors.Join(err, otherErr); err != nil || !found && !other {
				return fmt.Errorf("pod %d is not in the network: %w", i, err)
			}
		}
		return nil
	})
}

// TestBridgeFlaps kills the bridge as soon as its agent follows it. It repeats this. The agent always
// knows whether it follows the bridge, and gets the records of all pods of its node.
func TestBridgeFlaps(t *testing.T) {
	password := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(password, []byte(bridgetest.Password), 0o600))
	b := bridgetest.Serve(t, "--listen", "127.0.0.1:"+ovsdb.FreePort(t), "--data-dir", filepath.Join(t.TempDir(), "data"))
	flapPut(t, b, flapPool, flapSubnet)
	agent, err := uplink.New(uplink.Config{
		URLs: []string{b.Bridge().URL()}, Node: netip.MustParseAddr(flapAddress), User: bridgetest.User, PasswordFile: password,
		Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { agent.Run(ctx) })
	connected := func(want bool) func() bool { return func() bool { return agent.Status().Connected == want } }
	for i := range 4 {
		require.Eventually(t, connected(true), flapWithin, time.Millisecond)
		b.Kill()
		require.Eventually(t, connected(false), flapWithin, time.Millisecond)
		b.Start()
		flapPutPod(t, b, i)
	}
	for i := range 4 {
		heard, done := context.WithTimeout(t.Context(), flapWithin)
		_, err := agent.Await(heard, func(r *uplink.Record) bool { return r.PodUID == flapUID(i) })
		done()
		require.NoError(t, err)
	}
}
