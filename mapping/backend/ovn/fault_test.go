package ovn_test

import (
	"context"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/backendtest"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/test/lab/ovsdb"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// quick gives a backend short timeouts.
func quick(c *ovn.Config) {
	c.Timeout, c.ReadTimeout = 4*time.Second, 4*time.Second
	c.ConnectTimeout, c.Probe = 2*time.Second, 100*time.Millisecond
}

// unhurried gives a backend timeouts that a server that runs keeps on a slow machine.
func unhurried(c *ovn.Config) {
	c.Timeout, c.ReadTimeout, c.ConnectTimeout = 15*time.Second, 15*time.Second, 15*time.Second
}

// watch runs a backend's Watch. It returns a channel of the calls of changed, and one of
// the error that Watch returns.
func watch(t *testing.T, b *ovn.Backend) (changed chan struct{}, ended chan error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	changed, ended = make(chan struct{}, 100), make(chan error, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		ended <- b.Watch(ctx, func() { changed <- struct{}{} })
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return changed, ended
}

func requireChanged(t *testing.T, changed chan struct{}) {
	t.Helper()
	select {
	case <-changed:
	case <-time.After(patience.Patience):
		require.Fail(t, "Watch has not called changed")
	}
}

// eventuallyWrite writes until it succeeds.
func eventuallyWrite(t *testing.T, b *ovn.Backend, want netvirt.Model) {
	t.Helper()
	var have netvirt.Model
	require.Eventually(t, func() bool {
		var err error
		if have, err = b.Read(t.Context()); err != nil || b.Write(t.Context(), netvirt.Diff(have, want)) != nil {
			return false
		}
		have, err = b.Read(t.Context())
		return err == nil
	}, patience.Patience, 20*time.Millisecond)
	backendtest.Agree(t, want, have)
}

// TestServerFaults: if the server is killed, restarted, wiped or stopped, Watch notices
// it, and the backend works again without help.
func TestServerFaults(t *testing.T) {
	t.Parallel()
	faults := map[string]func(*testing.T, *ovsdb.Server, *ovn.Backend){
		"restart": func(t *testing.T, s *ovsdb.Server, _ *ovn.Backend) { s.Restart(t) },
		"wipe":    func(t *testing.T, s *ovsdb.Server, _ *ovn.Backend) { s.Wipe(t) },
		"killed for a while": func(t *testing.T, s *ovsdb.Server, b *ovn.Backend) {
			s.Kill(t)
			_, err := b.Read(t.Context())
			require.Error(t, err)
			s.Restart(t)
		},
		"stopped for a while": func(t *testing.T, s *ovsdb.Server, b *ovn.Backend) {
			s.Stop(t)
			_, err := b.Read(t.Context())
			require.Error(t, err)
			s.Continue(t)
		},
		"emptied in place": func(t *testing.T, s *ovsdb.Server, _ *ovn.Backend) {
			s.NBCtl(t, "--all", "destroy", "Logical_Switch", "--", "--all", "destroy", "Logical_Router", "--",
				"--all", "destroy", "Load_Balancer", "--", "--all", "destroy", "NB_Global")
		},
		"epoch removed": func(t *testing.T, s *ovsdb.Server, _ *ovn.Backend) {
			s.NBCtl(t, "remove", "NB_Global", ".", "external_ids", `"coe-bridge/epoch"`)
		},
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			server := ovsdb.Start(t)
			b := open(t, server, quick, func(c *ovn.Config) { c.Epoch = "3" })
			changed, _ := watch(t, b)
			want := someModel(b)
			eventuallyWrite(t, b, want)
			for round := 0; len(changed) > 0; round++ { // a server on a busy machine can answer later than the timeouts allow
				require.Less(t, round, 3)
				<-changed
				eventuallyWrite(t, b, want)
			}

			fault(t, server, b)
			requireChanged(t, changed)
			eventuallyWrite(t, b, want)
			eventuallyWrite(t, b, netvirt.Model{})
		})
	}
}

// reader records whether its caller may rely on the last Read, as reconcile.Loop does: a
// successful Read sets known, and a call of changed clears it, even during the Read.
type reader struct {
	mu    sync.Mutex
	epoch int
	known bool
}

func (r *reader) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.epoch++
	r.known = false
}

func (r *reader) isKnown() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.known
}

func (r *reader) read(ctx context.Context, b *ovn.Backend) {
	r.mu.Lock()
	epoch := r.epoch
	r.mu.Unlock()
	_, err := b.Read(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known = err == nil && epoch == r.epoch
}

// TestFlap kills the server right after a successful Read, while Watch still waits before
// it reconnects. Watch must report each loss: otherwise its caller relies on the model of
// a server that is gone.
func TestFlap(t *testing.T) {
	server := ovsdb.Start(t)
	b := open(t, server, quick)
	eventuallyWrite(t, b, someModel(b))
	var relied reader
	ctx, cancel := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	watching.Go(func() { _ = b.Watch(ctx, relied.end) })
	for round := range 10 {
		require.Eventually(t, func() bool {
			relied.read(ctx, b)
			return relied.isKnown()
		}, patience.Patience, time.Millisecond, "round %d: it is read again", round)
		server.Kill(t)
		require.Eventually(t, func() bool { return !relied.isKnown() }, patience.Patience, time.Millisecond,
			"round %d: the watch has not reported that the server is gone", round)
		server.Restart(t)
	}
}

// TestTwoReaders: a second Read succeeds after a restart of the server. A Watch that starts
// later still reports that the session of the first Read has ended, and only once.
func TestTwoReaders(t *testing.T) {
	server := ovsdb.Start(t)
	b := open(t, server)
	_, err := b.Read(t.Context())
	require.NoError(t, err)
	server.Restart(t)
	require.Eventually(t, func() bool {
		_, err := b.Read(t.Context())
		return err == nil
	}, patience.Patience, time.Millisecond)
	changed, _ := watch(t, b)
	requireChanged(t, changed)
	want := someModel(b)
	eventuallyWrite(t, b, want)
	require.Empty(t, changed)
}

// TestWriteAfterWipe: a write after the database was emptied fails or writes all that is
// needed. It never succeeds without writing.
func TestWriteAfterWipe(t *testing.T) {
	server := ovsdb.Start(t)
	b := open(t, server)
	want := someModel(b)
	write(t, b, want)
	server.NBCtl(t, "--all", "destroy", "Logical_Switch", "--", "--all", "destroy", "Logical_Router")

	w := backendtest.NewWorld(9)
	w.AddPods(3)
	more := w.ModelFor(b)
	for k := range want {
		delete(more, k)
	}
	require.Error(t, b.Write(t.Context(), netvirt.Diff(netvirt.Model{}, more)))
	write(t, b, want)
}

// TestStopped: a call ends at its deadline, even if it is large, or at an earlier deadline
// of its caller.
func TestStopped(t *testing.T) {
	t.Parallel()
	server := ovsdb.Start(t)
	b := open(t, server, func(c *ovn.Config) { c.Batch, c.Timeout = 10_000, 15*time.Second })
	patient := open(t, server, func(c *ovn.Config) { c.Timeout, c.ReadTimeout = never, never })
	large := netvirt.Model{}
	large.Add(bulk(500, 10, 20)...)
	withGateways(large)
	_, err := b.Read(t.Context())
	require.NoError(t, err)
	_, err = patient.Read(t.Context())
	require.NoError(t, err)

	server.Stop(t)
	begin := time.Now()
	require.Error(t, b.Write(t.Context(), netvirt.Diff(netvirt.Model{}, large)))
	require.Less(t, time.Since(begin), patience.Patience)

	_, err = b.Read(t.Context())
	require.Error(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = patient.Read(ctx) // its own deadline is later than that of the test
	require.ErrorIs(t, err, context.DeadlineExceeded)

	server.Continue(t)
	eventuallyWrite(t, patient, large)
}

// TestBusyServer: a server that answers nothing while it makes a large transaction is not left before the transaction has had its
// time.
func TestBusyServer(t *testing.T) {
	t.Parallel()
	server := ovsdb.Start(t)
	relay := ovsdb.NewRelay(t, server.Endpoint())
	b := open(t, server, quick, unhurried, func(c *ovn.Config) { c.Batch, c.Endpoints = 10_000, relay.Endpoint() })
	few, many := netvirt.Model{}, netvirt.Model{}
	few.Add(bulk(200, 10, 20)...)
	many.Add(bulk(9000, 10, 20)...)
	withGateways(few)
	withGateways(many)
	write(t, b, few)
	watch(t, b)
	changes := netvirt.Diff(few, many)

	held, release := relay.HoldAfter(1 << 20) // less than the transaction has, and more than probes send before it
	defer release()
	written := make(chan error, 1)
	go func() { written <- b.Write(t.Context(), changes) }()
	select {
	case err := <-written:
		require.Fail(t, "the write has ended", err)
	case <-held: // a busy machine needs long to compute the transaction, and the server answers probes meanwhile
	}
	select {
	case err := <-written:
		require.Fail(t, "the write has ended", err)
	case <-time.After(20 * time.Second): // longer than ReadTimeout, which is how long a probe waits while nothing is written
	}
	release()
	require.NoError(t, <-written)
}

// TestEndpoints: if one of two servers hangs, the backend uses the other.
func TestEndpoints(t *testing.T) {
	t.Parallel()
	hung, good := ovsdb.Start(t), ovsdb.Start(t)
	b := open(t, hung, quick, unhurried, func(c *ovn.Config) { c.Endpoints = hung.Endpoint() + "," + good.Endpoint() })
	want := someModel(b)
	write(t, b, want)
	require.NotEmpty(t, hung.NBCtl(t, "show"))
	require.Empty(t, good.NBCtl(t, "show"))

	hung.Stop(t)
	eventuallyRead(t, b)
	write(t, b, want)
	require.NotEmpty(t, good.NBCtl(t, "show"))
	hung.Continue(t)
}

// eventuallyRead reads until it succeeds.
func eventuallyRead(t *testing.T, b *ovn.Backend) {
	t.Helper()
	require.Eventually(t, func() bool {
		_, err := b.Read(t.Context())
		return err == nil
	}, patience.Patience, time.Millisecond)
}

// TestEpoch: the writer with the greatest epoch has the database; earlier writers cannot
// write any more.
func TestEpoch(t *testing.T) {
	server := ovsdb.Start(t)
	epoch := func(e string) func(*ovn.Config) { return func(c *ovn.Config) { c.Epoch = e } }
	first := open(t, server, epoch("9"))
	want := someModel(first)
	write(t, first, want)
	_, ended := watch(t, first)

	second := open(t, server, epoch("10"))
	write(t, second, want)
	require.Error(t, first.Write(t.Context(), netvirt.Diff(want, netvirt.Model{})))
	require.ErrorIs(t, first.Write(t.Context(), netvirt.Diff(want, netvirt.Model{})), ovn.ErrDeposed)
	_, err := first.Read(t.Context())
	require.ErrorIs(t, err, ovn.ErrDeposed)
	require.ErrorIs(t, <-ended, ovn.ErrDeposed)

	again := open(t, server, epoch("10"))
	write(t, again, netvirt.Model{})
	eventuallyWrite(t, second, want)
}

// TestDatastore: epochs of two datastores are not compared. The database stays with the
// first until an operator releases it, even if the other has an equal or greater epoch.
func TestDatastore(t *testing.T) {
	server := ovsdb.Start(t)
	of := func(datastore, epoch string) func(*ovn.Config) {
		return func(c *ovn.Config) { c.Datastore, c.Epoch = datastore, epoch }
	}
	first := open(t, server, of("one", "4"))
	want := someModel(first)
	write(t, first, want)
	other := open(t, server, of("two", "4"))
	for _, epoch := range []string{"3", "4", "5"} {
		b := open(t, server, of("two", epoch))
		_, err := b.Read(t.Context())
		require.ErrorIs(t, err, ovn.ErrOtherDatastore)
		require.ErrorContains(t, err, `its datastore is "one"`)
		require.ErrorIs(t, b.Write(t.Context(), netvirt.Diff(want, netvirt.Model{})), ovn.ErrOtherDatastore)
	}
	write(t, first, want)
	write(t, open(t, server, of("one", "5")), want)
	_, err := first.Read(t.Context())
	require.Error(t, err)

	server.NBCtl(t, "remove", "NB_Global", ".", "external_ids", "coe-bridge/epoch")
	have, err := other.Read(t.Context())
	require.NoError(t, err)
	require.Equal(t, want, have)
	_, err = open(t, server, of("one", "6")).Read(t.Context())
	require.ErrorIs(t, err, ovn.ErrOtherDatastore)
}

// TestTakenOver: a writer whose mirror is old, because another writer has changed the
// database, still writes its model.
func TestTakenOver(t *testing.T) {
	server := ovsdb.Start(t)
	one, two := open(t, server), open(t, server)
	w := backendtest.NewWorld(11)
	for range 30 {
		w.Step()
		model := w.ModelFor(one)
		write(t, one, model)
		w.Step()
		have, err := two.Read(t.Context())
		require.NoError(t, err)
		backendtest.Agree(t, model, have)
		write(t, one, netvirt.Model{})
		next := w.ModelFor(one)
		// two has not seen that all is gone: an error, or all that is wanted.
		if err := two.Write(t.Context(), netvirt.Diff(have, next)); err == nil {
			continue
		}
		write(t, two, next)
	}
}

// TestNoGoroutineLeaks: a session that has ended, for any reason, leaves no goroutine. The rounds wait for deadlines, at the same time.
func TestNoGoroutineLeaks(t *testing.T) {
	servers := make([]*ovsdb.Server, 5)
	for i := range servers {
		servers[i] = ovsdb.Start(t)
	}
	before := runtime.NumGoroutine()
	t.Run("rounds", func(t *testing.T) {
		for i, server := range servers {
			t.Run(strconv.Itoa(i), func(t *testing.T) {
				t.Parallel()
				b := open(t, server, quick, func(c *ovn.Config) { c.Epoch = "1" })
				eventuallyWrite(t, b, someModel(b))
				server.Restart(t)
				eventuallyWrite(t, b, netvirt.Model{})
				server.Stop(t)
				_, err := b.Read(t.Context())
				require.Error(t, err)
				server.Continue(t)
				eventuallyWrite(t, b, netvirt.Model{})
			})
		}
	})
	// The condition is a goroutine itself.
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+1 }, patience.Patience, 10*time.Millisecond)
}
