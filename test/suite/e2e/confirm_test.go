package e2e

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cmd/bridge"
	"github.com/coe-bridge/coe-bridge/mapping"
	"github.com/coe-bridge/coe-bridge/mapping/backend/odl"
	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/odlfake"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
)

// TestConfirmedByTheNetwork: with OpenDaylight a pod is confirmed while the operational datastore
// has it. The record in the node's stream, the operational tree and the trace agree, also after
// restarts of the bridge and of OpenDaylight.
func TestConfirmedByTheNetwork(t *testing.T) {
	t.Parallel()
	c := startConfirm(t)
	pod := aPod{uid: uid("a", 1), namespace: "shop", name: "web", node: "192.168.33.11"}
	c.rest().putPods(t, pod)
	c.bridge.AwaitSync(converge)
	c.awaitPod(pod, false, "not plugged in yet")
	port := c.port(pod)

	c.fake.Plug(port)
	c.awaitPod(pod, true, "")
	c.bridge.Restart()
	require.NoError(t, c.record(true), "the record keeps the last known state")
	c.bridge.AwaitSync(converge)
	c.awaitPod(pod, true, "")

	service := aService{uid: uid("b", 1), namespace: "shop", name: "front", address: "10.96.0.10", port: 80, endpoints: []string{pod.uid}}
	c.rest().change(t, http.MethodPut, servicePath(service.uid), service.body())
	c.awaitUnconfirmed("natservice")
	c.bridge.AwaitSync(converge)
	c.awaitPod(pod, true, "")

	c.fake.Load(http.StatusServiceUnavailable)
	await(t, converge, "the bridge notices that the controller is gone", func() error {
		if c.bridge.Status().Backend.Connected {
			return fmt.Errorf("the backend is still connected")
		}
		return nil
	})
	require.NoError(t, c.pod(pod, true, ""), "the switches go on without a controller")
	c.fake.Unplug() // the restarted controller has only its configuration
	c.fake.Load(0)
	c.awaitPod(pod, false, "not plugged in yet")
	c.bridge.AwaitSync(converge)
	c.fake.Plug(port)
	c.awaitPod(pod, true, "")

	c.fake.Down(port)
	c.awaitPod(pod, false, "its port is down")
	c.fake.Plug(port)
	c.awaitPod(pod, true, "")
	pod.address = "10.42.0.77" // its vpn-interface is removed and created again
	c.rest().putPods(t, pod)
	c.bridge.AwaitSync(converge)
	c.awaitPod(pod, true, "")
	c.fake.Unplug(port)
	c.awaitPod(pod, false, "not plugged in yet")
	c.bridge.AwaitSync(converge)
}

// TestFlowsThatAreNotProgrammed: OpenDaylight does not program a vpn-instance if another one has
// the same route distinguisher. The trace of a pod in this vpn-instance says so.
func TestFlowsThatAreNotProgrammed(t *testing.T) {
	t.Parallel()
	c := startConfirm(t, func(cfg *bridge.Config) { cfg.Mapping.Isolation = mapping.IsolationNamespace })
	pod := aPod{uid: uid("a", 1), namespace: "shop", name: "web", node: "192.168.33.11"}
	c.rest().putPods(t, pod)
	c.bridge.AwaitSync(converge)
	c.fake.Set("l3vpn:vpn-instances", "vpn-instance", "another", map[string]any{
		"vpn-instance-name": "another", "ipv4-family": map[string]any{"route-distinguisher": []any{"100:2"}},
	})
	// The pod reaches services by the port of its node.
	node := netvirt.NodePort{ELAN: netvirt.ELANName(netip.MustParseAddr(pod.node), pod.namespace)}
	c.fake.Plug(netvirt.NodePortName(node.Name()))
	c.fake.Plug(c.port(pod))
	c.awaitPod(pod, false, "flows not programmed: its vpn-instance is not in vpn-instance-op-data")
	c.fake.Remove("l3vpn:vpn-instances", "vpn-instance", "another")
	c.awaitPod(pod, true, "")
}

// confirmWorld is a bridge with a fake OpenDaylight in this process.
type confirmWorld struct {
	t      *testing.T
	fake   *odlfake.Controller
	bridge *bridgetest.Bridge
}

func startConfirm(t *testing.T, options ...bridgetest.Option) *confirmWorld {
	t.Helper()
	fake, err := odlfake.New(odlfake.Oxygen)
	require.NoError(t, err)
	server := httptest.NewServer(fake)
	t.Cleanup(server.Close)
	auth := filepath.Join(t.TempDir(), "auth")
	require.NoError(t, os.WriteFile(auth, []byte(odlfake.User+":"+odlfake.Password), 0o600))
	backend := func(c *bridge.Config) {
		c.Backend = bridge.BackendConfig{Name: "odl", ODL: odl.Config{URLs: server.URL, AuthFile: auth, Probe: time.Second, Poll: time.Second}}
	}
	c := &confirmWorld{t, fake, bridgetest.Start(t, append(options, backend)...)}
	c.rest().putPool(t, addressPool{network: "default", subnet: "10.42.0.0/16", gateway: "10.42.0.1"})
	return c
}

func (c *confirmWorld) rest() rest { return rest{c.bridge.Client()} }

// port returns the name of a pod's port.
func (c *confirmWorld) port(p aPod) string {
	var found []struct {
		Port string `json:"odl-interface:parent-interface"`
	}
	require.True(c.t, c.bridge.Get("config/ietf-interfaces:interfaces/interface/"+p.namespace+":"+p.name, &found))
	return found[0].Port
}

// awaitPod waits until all reports agree that a pod is confirmed, or that it is not and why.
func (c *confirmWorld) awaitPod(p aPod, confirmed bool, why string) {
	c.t.Helper()
	await(c.t, converge, "the expected confirmation", func() error { return c.pod(p, confirmed, why) })
}

func (c *confirmWorld) pod(p aPod, confirmed bool, why string) error {
	ctx := c.t.Context()
	if err := c.record(confirmed); err != nil {
		return err
	}
	found, err := c.rest().Read(ctx, "operational/l3vpn:vpn-interfaces/vpn-interface/"+p.namespace+":"+p.name, new([]any))
	if err != nil || found != confirmed {
		return fmt.Errorf("the operational tree has it: %t, %w", found, err)
	}
	return c.trace(ctx, confirmed, why)
}

// record checks the record of the only pod in the stream of the node's agent.
func (c *confirmWorld) record(confirmed bool) error {
	var records struct {
		All []struct {
			Confirmed bool `json:"confirmed"`
		} `json:"interface"`
	}
	err := c.rest().read(c.t.Context(), "operational/coe-agent:interfaces", &records)
	if err == nil && (len(records.All) != 1 || records.All[0].Confirmed != confirmed) {
		err = fmt.Errorf("records: %+v", records)
	}
	return err
}

func (c *confirmWorld) trace(ctx context.Context, confirmed bool, why string) error {
	var traced struct {
		Namespaces []struct {
			Pods []struct {
				Missing string `json:"missing"`
				Stages  []struct {
					Name   string `json:"name"`
					Detail string `json:"detail"`
				} `json:"stage"`
			} `json:"pod"`
		} `json:"namespace"`
	}
	if err := c.rest().read(ctx, "operational/coe-status:pods", &traced); err != nil {
		return err
	}
	pod := traced.Namespaces[0].Pods[0]
	last := pod.Stages[len(pod.Stages)-1]
	if (pod.Missing == "") != confirmed || pod.Missing != "" && pod.Missing != "confirmed" || !strings.Contains(last.Detail, why) {
		return fmt.Errorf("trace: %+v", pod)
	}
	return nil
}

// awaitUnconfirmed waits until the status has exactly this reason for unconfirmed objects.
func (c *confirmWorld) awaitUnconfirmed(why string) {
	c.t.Helper()
	await(c.t, converge, "unconfirmed", func() error {
		var st struct {
			Scopes []struct {
				Name        string `json:"name"`
				InSync      bool   `json:"in-sync"`
				Unconfirmed []struct {
					Reason  string `json:"reason"`
					Objects int    `json:"objects"`
				} `json:"unconfirmed"`
			} `json:"scope"`
		}
		if err := c.rest().read(c.t.Context(), "operational/coe-status:status", &st); err != nil {
			return err
		}
		for _, s := range st.Scopes {
			if s.InSync && len(s.Unconfirmed) == 1 && s.Unconfirmed[0].Objects == 1 && strings.Contains(s.Unconfirmed[0].Reason, why) {
				return nil
			}
		}
		return fmt.Errorf("status: %+v", st)
	})
}
