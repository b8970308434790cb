package ovncluster

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/test/lab/ovnhost"
)

// pod is a pod that is plugged in. Its address is in no pool.
type pod struct {
	ovnhost.Pod
	address netip.Addr
}

// plug creates a pod of the namespace web with an address of a family, plugs it in, and waits until all other pods of them reach it.
func (w *world) plug(host string, isIPv6 bool) pod {
	w.t.Helper()
	begun := time.Now()
	p := w.run("web", host, isIPv6)
	plugged := time.Since(begun)
	for _, other := range w.pods {
		if other.address.Is6() != isIPv6 {
			continue
		}
		require.NoError(w.t, w.lab.Ping(w.t.Context(), p.Name, other.address))
		require.NoError(w.t, w.lab.Ping(w.t.Context(), other.Name, p.address))
	}
	w.pods = append(w.pods, p)
	stages, err := w.ask(w.t.Context(), "trace", strings.ReplaceAll(p.Name, ":", "/"))
	require.NoError(w.t, err)
	w.t.Logf("%s on %s is installed after %.1f s, and all pods reach it after %.1f s\n%s", p.Name, host, plugged.Seconds(), time.Since(begun).Seconds(), stages)
	return p
}

// run creates a pod of a namespace with an address of a family, and plugs it in.
func (w *world) run(namespace, host string, isIPv6 bool) pod {
	w.t.Helper()
	w.count++
	name := "pod" + strconv.Itoa(w.count)
	address, gateway := netip.AddrFrom4([4]byte{10, 78, 0, byte(10 + w.count)}), netip.MustParseAddr("169.254.1.1")
	if isIPv6 {
		address, gateway = netip.MustParseAddr(fmt.Sprintf("fd00:78::%d", w.count)), netip.MustParseAddr("fe80::1")
	}
	uid := fmt.Sprintf("0e000000-c0e0-4000-8000-%012d", w.count)
	p := pod{address: address, Pod: ovnhost.Pod{
		Host: host, Name: namespace + ":" + name, UID: uid, PortName: netvirt.PortName(namespace+":"+name, uid),
		MAC:     net.HardwareAddr{0x0a, 0x58, 10, 78, 0, byte(10 + w.count)},
		Address: netip.PrefixFrom(address, address.BitLen()), Gateway: gateway,
	}}
	w.apply(fmt.Sprintf("pod:pods:\n- {uid: %s, name: %s, network-NS: %s, host-ip-address: %s, interface: [{uid: %s, network-type: VXLAN, ip-address: '%s'}], port-mac-address: '%s'}\n",
		uid, name, namespace, w.lab.Host(host).Address, uid, address, p.MAC))
	require.NoError(w.t, w.lab.Plug(w.t.Context(), p.Pod))
	return p
}

// unplug unplugs and deletes the pod that was plugged in last. Its row goes.
func (w *world) unplug() {
	w.t.Helper()
	p := w.pods[len(w.pods)-1]
	w.pods = w.pods[:len(w.pods)-1]
	require.NoError(w.t, w.lab.Unplug(w.t.Context(), p.Pod))
	_, err := w.ask(w.t.Context(), "delete", "pod", strings.ReplaceAll(p.Name, ":", "/"))
	require.NoError(w.t, err)
}

// requireOnly requires that the databases have the ports of all pods that are plugged in, and of no others, and that the bridge is in sync.
func (w *world) requireOnly() {
	w.t.Helper()
	var want []string
	for _, p := range w.pods {
		want = append(want, p.Name)
	}
	for _, f := range w.families {
		want = append(want, f.client.Name, f.guarded.Name)
	}
	slices.Sort(want)
	w.awaitSync()
	for db, column := range map[string][2]string{northbound: {"Logical_Switch_Port", "name"}, southbound: {"Port_Binding", "logical_port"}} {
		w.await("the database "+db+" has each pod once", func(ctx context.Context) error {
			out, err := w.askDatabase(ctx, db, "--bare", "--columns="+column[1], "list", column[0])
			if err != nil {
				return err
			}
			got := slices.DeleteFunc(strings.Fields(out), func(name string) bool {
				return !strings.Contains(name, ":pod") || w.isLoaded && strings.HasPrefix(name, "load:")
			})
			if slices.Sort(got); !slices.Equal(got, want) {
				return fmt.Errorf("%s has %v, want %v", db, got, want)
			}
			return nil
		})
	}
}
