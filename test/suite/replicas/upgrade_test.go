package replicas

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
	"github.com/coe-bridge/coe-bridge/test/lab/cache"
	"github.com/coe-bridge/coe-bridge/test/lab/ovsdb"
	"github.com/coe-bridge/coe-bridge/test/lab/serve"
)

// previous is the commit from which a rolling upgrade starts: the last one before decision 87, for TestUpgradeOfNodeACLs. It
// is changed with each release.
const previous = "163e82bb57feb57b61719c52b7c30a18294ef93e"

// upgradeSeed is the seed of the loads of a rolling upgrade.
const upgradeSeed = 20261123

// TestRollingUpgrade upgrades two replicas under load, one after the other, and then downgrades them.
// Both versions are leader and standby replica on the same datastore. Each pod keeps its address, and
// no address has two owners. The upgrade names no layout of OVN: the newer version keeps that of the older one. The older one would not keep
// that of the newer one, so the downgrade names it.
func TestRollingUpgrade(t *testing.T) {
	if testing.Short() {
		t.Skip("needs child processes: run without -short")
	}
	older, newer := previousProgram(t), bridgetest.Program(t)
	for _, c := range []struct {
		name, from, to string
		args           []string
	}{
		{"upgrade", older, newer, nil},
		{"downgrade", newer, older, []string{"--ovn-layout", "node"}},
	} {
		t.Run(c.name, func(t *testing.T) { rolling(t, c.from, c.to, c.args) })
	}
}

// rolling replaces two replicas of one program by two replicas of another one, under load. It always ends
// the leader first, so each program takes over from the other.
func rolling(t *testing.T, from, to string, layout []string) {
	t.Helper()
	nb, e := ovsdb.Start(t), startEtcd(t, 1)
	args := slices.Concat(addressesRest, []string{"--etcd-endpoints", strings.Join(e.Endpoints(), ","), "--backend", "ovn", "--ovn-nb", nb.Endpoint()}, layout)
	start := func(program, name string) *replica { return startProgram(t, program, name, args...) }
	leader := start(from, "the first older replica")
	await(t, patience, "the first replica leads", func() error { return leader.leads(true) })
	putPool(leader, "10.42.0.0/16")
	leases := watchLeases(t, e)

	var loads []*load
	for n, next := range []string{to, from, to, to} {
		standby := start(next, fmt.Sprintf("replica %d", n+1))
		l := newLoad(standby, upgradeSeed, n*10000, loadPace)
		loads = append(loads, l)
		stop := l.start(t)
		await(t, patience, "the load has reached the database", func() error { return rowSince(t, nb, n*10000+10) })
		before := livingLeases(standby)

		leader.Stop()
		await(t, patience, "the other one leads", func() error { return standby.leads(true) })
		first := l.number()
		await(t, patience, "a row of a later pod", func() error { return rowSince(t, nb, first) })
		stop()
		standby.awaitSync()
		requireExact(t, standby, nb, requireAcknowledged(t, standby, loads...))
		requireKept(t, before, livingLeases(standby))
		byNode := strings.Contains(nb.NBCtl(t, "--bare", "--columns=name", "list", "Logical_Switch"), "node:")
		require.Equal(t, layout != nil, byNode, "OVN has a switch for each node")
		leader = standby
	}
	leases.end(t)
}

// livingLeases returns the addresses of the pods with a lease, by interface name.
func livingLeases(r *replica) map[string]string {
	r.t.Helper()
	all := map[string]string{}
	for _, l := range r.leases() {
		if l.Released == "" {
			all[l.Name] = fmt.Sprint(l.MAC, l.Addresses)
		}
	}
	return all
}

// requireKept requires that each pod that still exists has the same addresses as before.
func requireKept(t *testing.T, before, after map[string]string) {
	t.Helper()
	require.NotEmpty(t, before)
	for name, had := range before {
		if has, there := after[name]; there {
			require.Equal(t, had, has, name)
		}
	}
}

// previousProgram is the bridge of the commit previous. It is built once into the cache.
func previousProgram(t *testing.T) string {
	t.Helper()
	folder := cache.Folder{
		Title: "the bridge of commit " + previous, Takes: "two minutes", Name: "previous", Inputs: []string{previous},
	}
	dir, err := folder.Make(t.Context(), os.Stderr, buildPrevious)
	require.NoError(t, err)
	return filepath.Join(dir, "coe-bridge")
}

// buildPrevious builds the bridge of the commit previous from this repository's history.
func buildPrevious(ctx context.Context, dir string) error {
	tree := filepath.Join(dir, "tree")
	if err := os.MkdirAll(tree, 0o755); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tree) }()
	top, err := exec.CommandContext(ctx, "git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		return fmt.Errorf("find the repository: %w; the test needs a git checkout with its history", err)
	}
	archive := exec.CommandContext(ctx, "git", "archive", "--output", filepath.Join(dir, "tree.tar"), previous)
	archive.Dir = strings.TrimSpace(string(top))
	if out, err := archive.CombinedOutput(); err != nil {
		return fmt.Errorf("read commit %s: %w: %s; a shallow clone lacks it: git fetch --unshallow", previous, err, out)
	}
	if out, err := exec.CommandContext(ctx, "tar", "-xf", filepath.Join(dir, "tree.tar"), "-C", tree).CombinedOutput(); err != nil {
		return fmt.Errorf("unpack commit %s: %w: %s", previous, err, out)
	}
	_, err = serve.BuildIn(ctx, tree, dir)
	return err
}
