package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/coe-bridge/coe-bridge/test/bench/figures"
	"github.com/coe-bridge/coe-bridge/test/lab/nbrows"
	"github.com/coe-bridge/coe-bridge/test/lab/nbwatch"
)

const (
	churnPods  = 600
	churnEvery = 50 * time.Millisecond
	churnLife  = 100 // pods that are not on a real host exist at the same time
)

// measureCluster measures a cluster of a number of nodes.
func measureCluster(nodes int) func(context.Context, *bench) ([]figures.Figure, error) {
	return func(ctx context.Context, b *bench) (all []figures.Figure, err error) {
		s, err := b.newSimulation(ctx, nodes)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, s.close()) }()
		var reports sync.WaitGroup
		reporting, end := context.WithCancel(ctx)
		reports.Go(func() { s.reportProgress(reporting) })
		defer func() {
			end()
			reports.Wait()
		}()
		return s.measure(ctx)
	}
}

// measure makes all measurements. After an error it returns the figures from before.
func (s *simulation) measure(ctx context.Context) (all []figures.Figure, err error) {
	var phases []phase
	for _, one := range []struct {
		name string
		run  func(context.Context) ([]figures.Figure, error)
	}{{"start", s.start}, {"churn", s.churn}, {"takeover", s.takeOver}, {"resync", s.resync}} {
		begun := time.Now()
		ph := phase{name: one.name}
		if one.name != "start" {
			if ph.before, err = s.uses(); err != nil {
				return all, err
			}
		}
		figs, err := one.run(ctx)
		all = append(all, figs...)
		if err != nil {
			return all, fmt.Errorf("%s: %w", one.name, err)
		}
		for _, f := range figs {
			s.Say("%s: %s", f.Name, f.Measured)
		}
		ph.took = time.Since(begun)
		if ph.after, err = s.uses(); err != nil {
			return all, err
		}
		if one.name != "takeover" { // the roles change
			phases = append(phases, ph)
		}
	}
	sizes, err := s.sizes()
	if err != nil {
		return all, err
	}
	uses, err := s.figures(phases)
	return append(append(all, sizes), uses...), err
}

// start starts the first bridge with empty databases, and then a standby.
func (s *simulation) start(ctx context.Context) ([]figures.Figure, error) {
	begun := time.Now()
	if err := s.addBridge(ctx); err != nil {
		return nil, err
	}
	if err := s.report(ctx); err != nil {
		return nil, err
	}
	s.follow()
	rows, err := s.bridges[0].AwaitSync(ctx, s.load.Count)
	if err != nil {
		return nil, err
	}
	s.Say("all rows are written")
	translated, installed, err := s.awaitOVN(ctx)
	if err != nil {
		return nil, err
	}
	logical, err := s.count(ctx, s.lab.SB.Remote, nbrows.Southbound, "Logical_Flow")
	if err != nil {
		return nil, err
	}
	flows, err := s.flows(ctx)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(s.bridges[0].AwaitTold(ctx, s.load.Count), s.streams.Await(ctx, streamsTimeout)); err != nil {
		return nil, err
	}
	if err := s.addBridge(ctx); err != nil {
		return nil, err
	}
	return []figures.Figure{
		figures.Unbound(s.name("start: rows written, translated, in the switches of nodes"),
			fmt.Sprintf("%s, %s, %s", figures.Short(rows.Sub(begun)), figures.Short(translated.Sub(begun)), figures.Short(installed.Sub(begun)))),
		figures.Unbound(s.name("logical flows; OpenFlow flows of a node"), fmt.Sprintf("%d; %d", logical, flows)),
	}, s.bridges[1].AwaitKnown(ctx)
}

// moments has the times at which ports were seen first.
type moments struct {
	mu sync.Mutex
	at map[string]time.Time
}

func newMoments() *moments { return &moments{at: map[string]time.Time{}} }

func (m *moments) note(port string) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, noted := m.at[port]; !noted {
		m.at[port] = now
	}
}

// has reports whether a port was noted.
func (m *moments) has(port string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, noted := m.at[port]
	return noted
}

// since returns the sorted durations from the known times of some ports. complete reports whether it has all.
func (m *moments) since(known map[string]time.Time) (took []time.Duration, complete bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for port, at := range known {
		if seen, found := m.at[port]; found {
			took = append(took, seen.Sub(at))
		}
	}
	slices.Sort(took)
	return took, len(took) == len(known)
}

// churn lets 20 pods a second come for half a minute, and go after five seconds, or when they have their row if that is later. Each tenth
// pod comes to a real host, and stays.
func (s *simulation) churn(ctx context.Context) (all []figures.Figure, err error) {
	if err := s.pods.AwaitWatch(ctx); err != nil {
		return nil, err
	}
	s.Say("%d pods come and go", churnPods)
	rows, installed := newMoments(), newMoments()
	watch, err := nbwatch.Start(ctx, s.lab.NB.Remote, rows.note)
	if err != nil {
		return nil, err
	}
	defer watch.Stop()
	for _, h := range s.lab.Hosts {
		w, err := nbwatch.StartInstalled(ctx, h.OVSDB.Remote, installed.note)
		if err != nil {
			return nil, err
		}
		defer w.Stop()
	}
	known, going, err := s.comeAndGo(ctx, rows)
	if err != nil {
		return nil, err
	}
	onHosts := map[string]time.Time{}
	for i := range churnPods {
		if port := s.portOf(s.load.Count + i); s.onHost(s.load.Count + i) {
			onHosts[port] = known[port]
		}
	}
	for _, one := range []struct {
		to  string
		of  *moments
		all map[string]time.Time
	}{{"row in NB", rows, known}, {"flows of its node", installed, onHosts}} {
		ctx, cancel := context.WithTimeout(ctx, settleLimit)
		defer cancel()
		var took []time.Duration
		if err := s.poll(ctx, one.to, func() (complete bool, _ error) {
			took, complete = one.of.since(one.all)
			return complete, nil
		}); err != nil {
			return all, fmt.Errorf("%w: %d of %d", err, len(took), len(one.all))
		}
		if going, err = s.deleteWritten(going, rows); err != nil {
			return nil, err
		}
		all = append(all, figures.Unbound(s.name("20 pods/s come and go: event to "+one.to+", p50, p99"),
			figures.Short(figures.Percentile(took, 50))+", "+figures.Short(figures.Percentile(took, 99))))
	}
	return all, nil
}

// comeAndGo creates the pods of churn, and deletes them. It returns when each was known, by port, and the pods that have had no row yet.
func (s *simulation) comeAndGo(ctx context.Context, rows *moments) (known map[string]time.Time, going []int, err error) {
	known = map[string]time.Time{}
	tick := time.NewTicker(churnEvery)
	defer tick.Stop()
	for n := range churnPods + churnLife {
		if i := s.load.Count + n; n < churnPods {
			known[s.portOf(i)] = time.Now()
			if err := s.pods.Resize(i + 1); err != nil {
				return nil, nil, err
			}
		}
		if i := s.load.Count + n - churnLife; n >= churnLife && !s.onHost(i) {
			going = append(going, i)
		}
		if going, err = s.deleteWritten(going, rows); err != nil {
			return nil, nil, err
		}
		select {
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		case <-tick.C:
		}
	}
	return known, going, nil
}

// deleteWritten deletes the pods that have their row, and returns the others.
func (s *simulation) deleteWritten(some []int, rows *moments) (others []int, err error) {
	for _, i := range some {
		if !rows.has(s.portOf(i)) {
			others = append(others, i)
		} else if err := s.pods.Delete(i); err != nil {
			return nil, err
		}
	}
	return others, nil
}

// takeOver kills the leader, and creates a pod at once.
func (s *simulation) takeOver(ctx context.Context) ([]figures.Figure, error) {
	rows := newMoments()
	watch, err := nbwatch.Start(ctx, s.lab.NB.Remote, rows.note)
	if err != nil {
		return nil, err
	}
	defer watch.Stop()
	begun := time.Now()
	if err := s.bridges[0].Signal(syscall.SIGKILL); err != nil {
		return nil, err
	}
	killed := s.bridges[0]
	s.mu.Lock()
	s.bridges = s.bridges[1:]
	s.mu.Unlock()
	i := s.load.Count + churnPods
	if err := s.pods.Resize(i + 1); err != nil {
		return nil, err
	}
	_ = killed.Wait() // it was killed
	killed.Client.Close()
	s.follow()
	limited, cancel := context.WithTimeout(ctx, settleLimit) // the context of a process is that of its start
	defer cancel()
	known := map[string]time.Time{s.portOf(i): begun}
	var took []time.Duration
	if err := s.poll(limited, "the row of a new pod", func() (complete bool, _ error) {
		took, complete = rows.since(known)
		return complete, nil
	}); err != nil {
		return nil, err
	}
	if _, err := s.bridges[0].AwaitSync(ctx, s.load.Count); err != nil {
		return nil, err
	}
	return []figures.Figure{figures.Unbound(s.name("the leader is killed: row of a new pod, in sync"),
		figures.Short(took[0])+", "+figures.Short(time.Since(begun)))}, s.addBridge(ctx)
}

// resync wipes the northbound database.
func (s *simulation) resync(ctx context.Context) ([]figures.Figure, error) {
	if err := s.bridges[1].AwaitKnown(ctx); err != nil {
		return nil, err
	}
	s.Say("the northbound database is wiped")
	begun := time.Now()
	if err := s.lab.NB.Wipe(ctx); err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	if err := s.poll(limited, "all rows", func() (bool, error) {
		ports, err := s.count(limited, s.lab.NB.Remote, nbrows.Northbound, "Logical_Switch_Port")
		return ports >= s.load.Count, err
	}); err != nil {
		return nil, err
	}
	rows, err := s.bridges[0].AwaitSync(ctx, s.load.Count)
	if err != nil {
		return nil, err
	}
	translated, installed, err := s.awaitOVN(ctx)
	return []figures.Figure{figures.Unbound(s.name("a wiped northbound database: rows written, translated, in the switches of nodes"),
		fmt.Sprintf("%s, %s, %s", figures.Short(rows.Sub(begun)), figures.Short(translated.Sub(begun)), figures.Short(installed.Sub(begun))))}, err
}
