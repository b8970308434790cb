package ovn_test

import (
	"bytes"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
	"github.com/coe-bridge/coe-bridge/mapping/reconcile"
	"github.com/coe-bridge/coe-bridge/test/lab/ovsdb"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

var (
	seeds     = flag.Int("seeds", 2, "number of schedules of faults that TestSchedules runs in each layout")
	firstSeed = flag.Uint64("first-seed", 0, "seed of the first of these schedules")
	within    = flag.Duration("within", patience.Patience, "time in which a loop must be in sync after the last fault of a schedule")
)

const (
	tick      = 10 * time.Millisecond
	maxGap    = 60  // ticks between the beginnings of two faults
	maxLength = 150 // ticks of a fault
)

// TestSchedules: pods, services and policies come and go while faults come and go at random. Afterwards the loop is in
// sync, the database has exactly the wanted rows, and the rows of an external writer are the same, byte for byte.
// A seed determines the faults, and which database it is: one server, or a cluster.
func TestSchedules(t *testing.T) {
	for _, layout := range []ovn.Layout{ovn.LayoutELAN, ovn.LayoutNode} {
		for i := range uint64(*seeds) {
			seed := *firstSeed + i
			t.Run(fmt.Sprintf("%s/%d", layout, seed), func(t *testing.T) {
				t.Parallel()
				runSchedule(t, layout, seed)
			})
		}
	}
}

// runSchedule runs the schedule of a seed.
func runSchedule(t *testing.T, layout ovn.Layout, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 7))
	d := newDatabase(t, seed%2 == 1, rng)
	b := d.backend(t, layout)
	c := start(t, b, seed, reconcile.Config{Resync: time.Second}) // damage by an external writer is found by a resync
	stop := c.during()
	begun := time.Now()
	names := d.suffer(t, 4+rng.IntN(5))
	d.repair(t)
	healed := time.Now()
	stop()
	c.step()
	d.awaitConnected(t)
	d.restore(t)

	want := rowsOf(t, c.model(), ovsdb.Schema("ovn/ovn-nb"), layout)
	var ours, external string
	for deadline := healed.Add(*within); ours != want; <-time.After(tick) {
		isLate := time.Now().After(deadline)
		if c.loop.Status().InSync {
			ours, external = d.rows(t)
		}
		if isLate {
			break
		}
	}
	after := time.Since(healed)
	status := c.loop.Status()
	require.Equal(t, want, ours, "after %v: %+v", names, status)
	require.Equal(t, d.external, external, "rows of the external writer, after %v", names)
	require.Contains(t, d.dump(t, "NB_Global"), "someone=else")
	t.Logf("%d members; %v of %s; in sync %v later", len(d.members), healed.Sub(begun).Round(time.Millisecond), strings.Join(names, ", "), after.Round(time.Millisecond))
}

// member is a server that can fail.
type member interface {
	Kill(testing.TB)
	Restart(testing.TB)
	TryRestart() error
	Stop(testing.TB)
	Continue(testing.TB)
	FillDisk(testing.TB)
	FreeDisk(testing.TB)
	TryNBCtl(args ...string) (string, error)
	Dump(t testing.TB, tables ...string) string
}

// database is a northbound database with relays between it and its client.
type database struct {
	rng     *rand.Rand
	server  *ovsdb.Server  // nil for a cluster
	cluster *ovsdb.Cluster // nil for one server
	members []member
	relays  []*ovsdb.Relay
	failing map[member]bool
	broken  []*ovsdb.Member // that refuse their data; they are also in failing
	// external has the rows of an external writer: byte for byte, and by UUID.
	external string
	uuids    map[string]bool
}

func newDatabase(t *testing.T, isClustered bool, rng *rand.Rand) *database {
	t.Helper()
	d := &database{rng: rng, failing: map[member]bool{}}
	if isClustered {
		d.cluster = ovsdb.StartClusterOnDisks(t)
		for _, m := range d.cluster.Members {
			d.members, d.relays = append(d.members, m), append(d.relays, ovsdb.NewRelay(t, m.Endpoint()))
		}
	} else {
		d.server = ovsdb.StartOnDisk(t)
		d.members, d.relays = []member{d.server}, []*ovsdb.Relay{ovsdb.NewRelay(t, d.server.Endpoint())}
	}
	d.addExternal(t)
	return d
}

// backend returns a backend that uses the relays. Small transactions and short timeouts are more likely to meet a fault.
func (d *database) backend(t *testing.T, layout ovn.Layout) *ovn.Backend {
	t.Helper()
	var endpoints []string
	for _, r := range d.relays {
		endpoints = append(endpoints, r.Endpoint())
	}
	cfg := ovn.Config{Endpoints: strings.Join(endpoints, ","), Layout: layout, Epoch: "5", Batch: 1 + d.rng.IntN(20)}
	if d.cluster != nil {
		cfg.TLS = d.cluster.TLS()
	}
	if d.rng.IntN(2) == 0 {
		quick(&cfg)
	}
	var log bytes.Buffer
	b, err := ovn.New(cfg, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	require.NoError(t, err)
	t.Cleanup(func() {
		b.Close()
		if t.Failed() {
			t.Logf("the backend's log: %s", log.String())
		}
	})
	return b
}

// addExternal adds the rows of an external writer to an empty database that the backend cannot reach.
func (d *database) addExternal(t *testing.T) {
	t.Helper()
	_, err := d.members[0].TryNBCtl(externalRows()...)
	require.NoError(t, err)
	d.uuids = map[string]bool{}
	all := d.dump(t, tables...)
	for line := range strings.Lines(all) {
		if uuid, _, _ := strings.Cut(line, ","); len(uuid) == len("00000000-0000-0000-0000-000000000000") {
			d.uuids[uuid] = true
		}
	}
	_, d.external = d.divide(all)
}

// dump returns the rows of a member that has all of them.
func (d *database) dump(t *testing.T, tables ...string) string {
	t.Helper()
	if d.cluster != nil {
		return d.cluster.Leader(t).Dump(t, tables...)
	}
	return d.server.Dump(t, tables...)
}

// rows returns the rows of the backend, and the rows of the external writer.
func (d *database) rows(t *testing.T) (ours, external string) {
	t.Helper()
	return d.divide(d.dump(t, tables...))
}

func (d *database) divide(dump string) (ours, external string) {
	var parts [2]strings.Builder
	for line := range strings.Lines(dump) {
		uuid, _, _ := strings.Cut(line, ",")
		part := &parts[0]
		if d.uuids[uuid] {
			part = &parts[1]
		}
		part.WriteString(line)
	}
	return parts[0].String(), parts[1].String()
}

// planned is a fault of a schedule.
type planned struct {
	at, length int // ticks
	fault      fault
}

// suffer runs a number of faults, some of which overlap. It returns their names when the last has ended.
func (d *database) suffer(t *testing.T, number int) (names []string) {
	t.Helper()
	faults := d.faults()
	var plan []planned
	at := 0
	for range number {
		at += 1 + d.rng.IntN(maxGap)
		plan = append(plan, planned{at, 1 + d.rng.IntN(maxLength), faults[d.rng.IntN(len(faults))]})
	}
	type running struct {
		until int
		end   func()
	}
	var ends []running
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for now := 0; len(plan) > 0 || len(ends) > 0; now++ {
		<-ticker.C
		ends = slices.DeleteFunc(ends, func(r running) bool {
			if r.until <= now {
				r.end()
			}
			return r.until <= now
		})
		if len(plan) > 0 && plan[0].at <= now {
			if end := plan[0].fault.begin(t); end != nil {
				names = append(names, plan[0].fault.name)
				ends = append(ends, running{now + plan[0].length, end})
			}
			plan = plan[1:]
		}
	}
	return names
}

// awaitConnected waits until all members of a cluster are in contact with a majority.
func (d *database) awaitConnected(t *testing.T) {
	t.Helper()
	if d.cluster == nil {
		return
	}
	for _, m := range d.cluster.Members {
		m.AwaitConnected(t)
	}
}
