package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/ovsdb"
)

// A round of TestKill kills the bridge once, at a random time within these bounds.
const (
	killRounds = 6
	killSeed   = 20260611
	minLoad    = 50 * time.Millisecond
	maxLoad    = 1500 * time.Millisecond
	writers    = 4
)

// TestKill kills a bridge under load in several rounds. Acknowledged writes stay, no address is given
// twice, and at the end OVN has the same rows as without a kill.
func TestKill(t *testing.T) {
	if testing.Short() {
		t.Skip("needs ovsdb-server and child processes; make test runs it")
	}
	t.Parallel()
	nb := ovsdb.Start(t)
	external := addExternal(t, nb)
	// The rest is longer than the test, so no address is given to a second pod.
	p := startProcess(t, nb.Endpoint(), "--address-reuse-delay", "1h")
	p.rest().putPool(t, addressPool{network: "default", subnet: "10.42.0.0/16", gateway: "10.42.0.1"})

	random := rand.New(rand.NewPCG(killSeed, 0))
	load := make([]*writer, writers)
	for i := range load {
		load[i] = newWriter(i, killSeed)
	}
	given := holders{}
	for round := range killRounds {
		after := minLoad + time.Duration(random.Int64N(int64(maxLoad-minLoad)))
		runLoad(t, p, load, given, after)
		p.Start()
		for _, w := range load {
			require.NoError(t, w.settle(t.Context(), p.rest()), "round %d, seed %d, killed after %s", round, killSeed, after)
		}
		require.NoError(t, given.look(t.Context(), p.rest()))
	}
	for _, w := range load {
		t.Logf("writer %d: %d acknowledged, %d refused", w.number, w.acked, w.refused)
		require.Positive(t, w.acked)
		require.Positive(t, w.refused)
	}
	p.rest().awaitSync(t, converge)
	require.NoError(t, given.look(t.Context(), p.rest()))
	requireAcknowledged(t, p.rest(), load)
	requireConfirmed(t, p.rest())
	requireRows(t, p.rest(), nb, load)
	require.Subset(t, dump(t, nb), external, "the rows of the external writer")

	// Incremental writes must have the same result as one write.
	bitByBit := slices.DeleteFunc(dump(t, nb), func(line string) bool { return slices.Contains(external, line) })
	nb.Wipe(t)
	await(t, converge, "all rows again", func() error { return sameSet(bitByBit, dump(t, nb)) })
}

// runLoad has the writers write until the bridge is killed.
func runLoad(t *testing.T, p process, load []*writer, given holders, after time.Duration) {
	t.Helper()
	ended := make(chan error, len(load)+1)
	for _, w := range load {
		go func() { ended <- w.run(t.Context(), p.rest()) }()
	}
	go func() { ended <- given.watch(t.Context(), p.rest()) }()
	var wrong []error
	select {
	case <-time.After(after):
	case err := <-ended: // before the kill: an answer was wrong
		wrong = append(wrong, err)
	}
	p.Kill()
	for n := len(wrong); n < len(load)+1; n++ {
		wrong = append(wrong, <-ended)
	}
	require.NoError(t, errors.Join(wrong...))
}

// holders has the pod that was given each address.
type holders map[netip.Addr]string

// watch reads the leases repeatedly until the bridge does not answer.
func (h holders) watch(ctx context.Context, r rest) error {
	for {
		leases, err := r.leases(ctx)
		if err != nil {
			return nil
		}
		if err := h.note(leases); err != nil {
			return err
		}
	}
}

func (h holders) look(ctx context.Context, r rest) error {
	leases, err := r.leases(ctx)
	if err != nil {
		return err
	}
	return h.note(leases)
}

func (h holders) note(leases []lease) error {
	for _, l := range leases {
		for _, a := range l.Addresses {
			if other := h[a]; other != "" && other != l.PodUID {
				return fmt.Errorf("address %s was given to pod %s, and now to %s", a, other, l.PodUID)
			}
			h[a] = l.PodUID
		}
	}
	return nil
}

// TestServiceChangesNamespace moves a service from one namespace to another. OVN must keep its rows
// when it leaves a namespace.
func TestServiceChangesNamespace(t *testing.T) {
	t.Parallel()
	nb := ovsdb.Start(t)
	r := startDefault(t, nb)
	s := aService{uid: uid("b", 1), name: "page", address: "10.96.0.10", port: 80, target: "8080"}
	for i := range 30 {
		s.namespace = fmt.Sprintf("ns-%d", i%2)
		r.change(t, http.MethodPut, servicePath(s.uid), s.body())
		r.awaitSync(t, converge)
		require.Equal(t, []string{s.namespace + ":page:tcp"}, ours(nb.NBCtl(t, columns("name", "list", "Load_Balancer")...)))
	}
}

// requireAcknowledged requires that the lists have exactly the acknowledged entries.
func requireAcknowledged(t *testing.T, r rest, load []*writer) {
	t.Helper()
	for _, list := range []struct{ tree, list, key, path string }{
		{"pod:coe", "pods", "uid", podPath("")},
		{"service:service-information", "services", "uid", servicePath("")},
	} {
		var top map[string][]map[string]any
		require.NoError(t, r.read(t.Context(), "config/"+list.tree, &top))
		var got, want []string
		for _, e := range top[list.list] {
			got = append(got, list.path+fmt.Sprint(e[list.key]))
		}
		for _, w := range load {
			for _, e := range w.entries {
				if e.container == list.tree && e.present() {
					want = append(want, e.path)
				}
			}
		}
		require.ElementsMatch(t, want, got)
	}
}

// netvirtTrees are the trees of the model.
var netvirtTrees = []string{
	"elan:elan-instances", "elan:elan-interfaces", "l3vpn:vpn-instances", "l3vpn:vpn-interfaces",
	"ietf-interfaces:interfaces", "odl-nat:floating-ip-info", "coe-netvirt:services", "coe-netvirt:subnets",
}

// requireConfirmed requires that the backend has confirmed all wanted objects.
func requireConfirmed(t *testing.T, r rest) {
	t.Helper()
	for _, tree := range netvirtTrees {
		_, want, err := r.do(t.Context(), http.MethodGet, "config/"+tree, nil)
		require.NoError(t, err)
		_, got, err := r.do(t.Context(), http.MethodGet, "operational/"+tree, nil)
		require.NoError(t, err)
		require.JSONEq(t, want, got, tree)
	}
}

// requireRows computes the expected rows from the writers' data and the leases, and requires that
// the database has them.
func requireRows(t *testing.T, r rest, nb *ovsdb.Server, load []*writer) {
	t.Helper()
	leases := r.living(t)
	var ports, services []string
	switches := map[string]bool{}
	pods := 0
	for _, w := range load {
		for _, e := range w.entries {
			if !e.present() {
				continue
			}
			switch e.container {
			case "pod:coe":
				said := e.may[0]["pods"].([]object)[0]
				l, found := leases[said["uid"].(string)]
				require.True(t, found, "pod %v has no lease", said)
				require.Equal(t, said["host-ip-address"], l.Node.String())
				require.Equal(t, said["network-NS"], l.Namespace)
				require.Equal(t, fmt.Sprintf("%s:%s", l.Namespace, said["name"]), l.Name)
				ports = append(ports, fmt.Sprintf("%s,%s %s", l.Name, l.MAC, strings.Join(texts(l.Addresses), " ")))
				switches["node:"+l.Node.String()] = true
				pods++
			case "service:service-information":
				said := e.may[0]["services"].([]object)[0]
				services = append(services, fmt.Sprintf("%s:%s:tcp", said["network-NS"], said["name"]))
			}
		}
	}
	require.Len(t, leases, pods)
	require.NotEmpty(t, ports)
	require.ElementsMatch(t, ports, ours(nb.NBCtl(t, columns("name,addresses", "find", "Logical_Switch_Port", `type=""`)...)))
	require.ElementsMatch(t, keys(switches), ours(nb.NBCtl(t, columns("name", "list", "Logical_Switch")...)))
	require.Equal(t, []string{"transit:100:1"}, ours(nb.NBCtl(t, columns("name", "list", "Logical_Router")...)))
	require.ElementsMatch(t, services, ours(nb.NBCtl(t, columns("name", "list", "Load_Balancer")...)))
}

func columns(names string, args ...string) []string {
	return append([]string{"--format=csv", "--data=bare", "--no-headings", "--columns=" + names}, args...)
}

// ours returns the lines without the rows of the external writer.
func ours(lines string) []string {
	return slices.DeleteFunc(strings.Split(strings.TrimSpace(lines), "\n"), func(line string) bool {
		return line == "" || strings.HasPrefix(line, externalName)
	})
}

func keys(set map[string]bool) []string {
	var out []string
	for k := range set {
		out = append(out, k)
	}
	return out
}

// externalName is the prefix of the names of rows from an external writer.
const externalName = "external"

// rowTables are the tables that have rows of the bridge or of the external writer.
var rowTables = []string{
	"Logical_Switch", "Logical_Switch_Port", "Logical_Router", "Logical_Router_Port", "Logical_Router_Static_Route",
	"Logical_Router_Policy", "Load_Balancer", "Load_Balancer_Group", "DHCP_Options", "ACL", "Address_Set", "Port_Group",
	"NAT", "QoS", "Meter", "Static_MAC_Binding",
}

// dump returns all rows, one in each line.
func dump(t *testing.T, nb *ovsdb.Server) []string {
	t.Helper()
	var rows []string
	for _, table := range rowTables {
		for line := range strings.Lines(nb.Dump(t, table)) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "_uuid") && !strings.HasSuffix(line, " table") {
				rows = append(rows, table+": "+line)
			}
		}
	}
	return rows
}

// addExternal creates rows in every table, as other users of the database do, and returns them.
func addExternal(t *testing.T, nb *ovsdb.Server) []string {
	t.Helper()
	for _, command := range [][]string{
		{"ls-add", "external-switch"},
		{"lsp-add", "external-switch", "external-port"},
		{"lsp-set-addresses", "external-port", "02:00:00:00:00:01 10.42.0.5"},
		{"lr-add", "external-router"},
		{"lrp-add", "external-router", "external-router-port", "02:00:00:00:00:02", "10.42.0.1/16"},
		{"lr-route-add", "external-router", "10.42.0.0/29", "10.42.0.9"},
		{"lr-nat-add", "external-router", "snat", "192.0.2.1", "10.42.0.0/16"},
		{"lb-add", "external-lb", "10.96.0.10:80", "10.42.0.5:8000"},
		{"ls-lb-add", "external-switch", "external-lb"},
		{"acl-add", "external-switch", "to-lport", "1000", "ip4", "drop"},
		{"dhcp-options-create", "10.42.0.0/29", "external=yes"},
		{"create", "Load_Balancer_Group", "name=external-group"},
		{"create", "Address_Set", "name=external_set", "addresses=10.42.0.5"},
		{"pg-add", "external_group", "external-port"},
	} {
		nb.NBCtl(t, command...)
	}
	rows := dump(t, nb)
	require.GreaterOrEqual(t, len(rows), 12)
	return rows
}
