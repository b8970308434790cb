package agent_test

import (
	"context"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/multus"
)

// multus calls Multus on the sandbox's host. It delegates to the networks in order: the first
// is eth0 of the pod, the second net1.
func (s *sandbox) multus(ctx context.Context, command string, more object, networks ...object) ([]byte, error) {
	program, err := multus.Build(ctx, s.w.t.Output())
	if err != nil {
		return nil, err
	}
	ours, err := plugin()
	if err != nil {
		return nil, err
	}
	conf := object{
		"cniVersion": "1.1.0", "name": "multus", "type": "multus", "binDir": filepath.Dir(ours),
		"cniDir": filepath.Join(s.w.lab.Dir, s.host, "multus"), "delegates": networks,
	}
	return s.run(ctx, invoke{command: command, conf: more}, conf, "nsenter", "--net=/run/netns/"+s.w.lab.Namespace(s.host), "--", program)
}

// multusAdd attaches the sandbox with Multus.
func (s *sandbox) multusAdd(networks ...object) *current.Result {
	s.w.t.Helper()
	out, err := s.multus(s.w.t.Context(), "ADD", nil, networks...)
	require.NoError(s.w.t, err)
	result, err := resultOf(out)
	require.NoError(s.w.t, err)
	return result
}

// multusDel detaches the sandbox with Multus, and checks that nothing is left.
func (s *sandbox) multusDel(networks ...object) {
	s.w.t.Helper()
	_, err := s.multus(s.w.t.Context(), "DEL", nil, networks...)
	require.NoError(s.w.t, err)
	s.isUnplugged()
}

func (s *sandbox) isUnplugged() {
	s.w.t.Helper()
	require.NoError(s.w.t, s.w.left(s.host, s.w.agents[s.host].dir).is(0))
	links := s.w.ip(s.inLab(), "-brief", "link", "show")
	require.NotContains(s.w.t, links, "eth0")
	require.NotContains(s.w.t, links, "net1")
}

// ours is our network on the sandbox's host, as a list, and in the form for a further network.
func (s *sandbox) ours() object {
	return object{"cniVersion": "1.1.0", "name": "coe-bridge", "plugins": []object{{"type": "coe-cni", "socket": s.w.agents[s.host].socket}}}
}

func (s *sandbox) oursFurther() object {
	return object{"cniVersion": "1.0.0", "name": "coe", "type": "coe-cni", "socket": s.w.agents[s.host].socket}
}

// other is a network of the CNI project's plugins with a default route.
func (w *world) other() object {
	return object{
		"cniVersion": "1.0.0", "name": "other", "type": "bridge", "bridge": "other0", "isDefaultGateway": true,
		"ipam": object{"type": "host-local", "dataDir": filepath.Join(w.lab.Dir, "other"), "subnet": "10.88.0.0/24"},
	}
}

// broken is a network whose plugin fails at ADD only.
func (w *world) broken() object {
	return object{
		"cniVersion": "1.0.0", "name": "broken", "type": "bridge", "bridge": "other0",
		"ipam": object{"type": "static", "addresses": []object{{"address": "no prefix"}}},
	}
}

// TestMultus uses the real Multus: for the default network, with another network, twice for a
// pod, before a network that fails, and killed during an ADD.
func TestMultus(t *testing.T) {
	t.Parallel()
	w := newWorld(t, impatient, "host1", "host2")
	near, far := w.pod("host1", 1, "web", "near"), w.pod("host2", 2, "shop", "far")
	w.step("as the default network", func() { w.testMultusDefault(near, far) })
	w.step("beside another network", func() { w.testMultusFurther(near, far) })
	w.step("routes of a further link", func() { w.testFurtherRoutes(near) })
	w.step("a second interface is refused", func() { w.testSecond(near, far) })
	w.step("another network fails", func() {
		_, err := near.multus(w.t.Context(), "ADD", nil, near.ours(), w.broken())
		require.ErrorContains(w.t, err, `"broken"`)
		near.isUnplugged()
	})
	w.step("Multus is killed in mid-ADD", func() { w.testMultusKilled(near) })
}

func (w *world) testMultusDefault(near, far *sandbox) {
	t := w.t
	results := map[*sandbox]*current.Result{}
	for _, p := range []*sandbox{near, far} {
		results[p] = p.multusAdd(p.ours())
		p.address = addressOf(results[p])
		require.Equal(t, "eth0", results[p].Interfaces[1].Name)
		require.Equal(t, p.path(), results[p].Interfaces[1].Sandbox)
	}
	w.reach(near, far)
	check := func() error {
		_, err := near.multus(t.Context(), "CHECK", object{"prevResult": results[near]}, near.ours())
		return err
	}
	require.NoError(t, check())
	w.ip(near.inLab(), "link", "set", "eth0", "mtu", "1000")
	require.ErrorContains(t, check(), "differs from the result of ADD")
	w.ip(near.inLab(), "link", "set", "eth0", "mtu", "1442")
	require.NoError(t, check())

	_, err := near.multus(t.Context(), "STATUS", nil, near.ours())
	require.NoError(t, err)
	allowSocket(t, "/run/none.sock")
	nowhere := object{"cniVersion": "1.1.0", "name": "coe-bridge", "plugins": []object{{"type": "coe-cni", "socket": "/run/none.sock"}}}
	_, err = near.multus(t.Context(), "STATUS", nil, nowhere)
	require.ErrorContains(t, err, "the node's agent is not running")

	valid := object{"cni.dev/valid-attachments": []object{{"containerID": near.container, "ifname": "eth0"}}}
	_, err = near.multus(t.Context(), "GC", valid, near.ours())
	require.NoError(t, err)
	w.reach(near, far)
	for _, p := range []*sandbox{near, far, near} { // near's twice
		p.multusDel(p.ours())
	}
}

// testMultusFurther attaches a pod to another network, which has the default route, and to
// ours, through which it reaches the pods of all nodes.
func (w *world) testMultusFurther(near, far *sandbox) {
	t := w.t
	for _, p := range []*sandbox{near, far} {
		result := p.multusAdd(w.other(), p.oursFurther())
		require.True(t, netip.MustParsePrefix("10.88.0.0/24").Contains(addressOf(result)), "the other network's is the pod's: %s", addressOf(result))
		p.address = w.addressIn(p, "net1")
		require.True(t, netip.MustParsePrefix("10.42.0.0/16").Contains(p.address), "%s", p.address)
		require.Regexp(t, `^default via 10\.88\.0\.1 dev eth0 *\n$`, w.ip(p.inLab(), "-4", "route", "show", "default"))
	}
	w.reach(near, far)
	for _, p := range []*sandbox{near, far} {
		p.multusDel(w.other(), p.oursFurther())
	}
}

// addressIn returns the address of a link of a sandbox.
func (w *world) addressIn(s *sandbox, link string) netip.Addr {
	w.t.Helper()
	fields := strings.Fields(w.ip(s.inLab(), "-brief", "-4", "address", "show", "dev", link))
	require.Len(w.t, fields, 3)
	return netip.MustParsePrefix(fields[2]).Addr()
}

// testFurtherRoutes checks the routes of a link other than eth0.
func (w *world) testFurtherRoutes(p *sandbox) {
	const gateway, everywhere, pods = "10.42.0.1/32", "0.0.0.0/0", "10.42.0.0/16"
	for _, c := range []struct {
		conf object
		want []string
	}{
		{nil, []string{gateway, pods}},
		{object{"isDefaultGateway": true}, []string{gateway, everywhere}},
		{object{"isDefaultGateway": false}, []string{gateway}},
	} {
		result, err := p.add(w.t.Context(), invoke{ifName: "net1", conf: c.conf})
		require.NoError(w.t, err)
		var got []string
		for _, r := range result.Routes {
			got = append(got, r.Dst.String())
		}
		require.Equal(w.t, c.want, got, "%v", c.conf)
		_, err = p.invoke(w.t.Context(), invoke{command: "CHECK", ifName: "net1", conf: object{"prevResult": result}})
		require.NoError(w.t, err)
		_, err = p.invoke(w.t.Context(), invoke{command: "DEL", ifName: "net1"})
		require.NoError(w.t, err)
		p.isUnplugged()
	}
}

// testSecond requests a second interface of a pod, with Multus and without it. The first one
// stays unchanged.
func (w *world) testSecond(p, far *sandbox) {
	t := w.t
	_, err := p.multus(t.Context(), "ADD", nil, p.ours(), p.oursFurther())
	require.ErrorContains(t, err, "coe-bridge gives a pod one interface")
	p.isUnplugged()

	first := p.mustAdd()
	far.mustAdd()
	_, err = p.add(t.Context(), invoke{ifName: "net1"})
	require.EqualValues(t, types.ErrInvalidNetworkConfig, code(err))
	require.ErrorContains(t, err, "pod web/near is already attached by link eth0")
	_, err = p.invoke(t.Context(), invoke{command: "DEL", ifName: "net1"})
	require.NoError(t, err)
	require.NoError(t, p.check(first))
	w.reach(p, far)
	for _, s := range []*sandbox{p, far} {
		require.NoError(t, s.del())
		s.isUnplugged()
	}
}

// testMultusKilled kills Multus while the plugin waits for OVN. The runtime's DEL removes the
// leftovers.
func (w *world) testMultusKilled(p *sandbox) {
	ctx, kill := context.WithCancel(w.t.Context())
	defer kill()
	added := w.untilPort(p, func() error {
		_, err := p.multus(ctx, "ADD", nil, p.ours())
		return err
	})
	kill()
	require.Error(w.t, <-added)
	p.multusDel(p.ours())
	require.NoError(w.t, w.lab.Host(p.host).Controller.Cont())
	require.NotEmpty(w.t, p.multusAdd(p.ours()).IPs)
	p.multusDel(p.ours())
}
