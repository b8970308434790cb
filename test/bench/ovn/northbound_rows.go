package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/coe-bridge/coe-bridge/test/bench/figures"
	"github.com/coe-bridge/coe-bridge/test/lab/nbcopy"
	"github.com/coe-bridge/coe-bridge/test/lab/nbrows"
	"github.com/coe-bridge/coe-bridge/test/lab/ovsdb"
)

const (
	fewPods, churnBase, manyPods = 500, 5000, 50_000

	startRate   = 0.8
	startRounds = 5
	// defaultAnnotateQPS is the default of --annotate-qps.
	defaultAnnotateQPS = "200"
	oneFactor          = 1.5
	onePods            = 100
	oneLife            = 25 // pods exist at the same time, so that no pod goes before a slow machine has written it
	oneEvery           = 200 * time.Millisecond
	churnPods          = 400
	churnLife          = 100
	churnEvery         = 50 * time.Millisecond
	churnFactor        = 10
	storedBytes        = 600 // about the record of a pod
	churnAim           = 10 * time.Millisecond
	restartBound       = 5 * time.Second
	restartMemory      = 600
	podsOfEveryNode    = 50
)

// measureRows measures what the bridge writes to a northbound database without northd.
func measureRows(ctx context.Context, b *bench) (all []figures.Figure, err error) {
	var few []time.Duration // one pod among few
	for _, pods := range []int{fewPods, churnBase, manyPods} {
		figs, one, err := b.rowsOf(ctx, pods)
		all = append(all, figs...)
		if err != nil {
			return all, err
		}
		switch pods {
		case fewPods:
			few = one
		case manyPods:
			o, f := figures.Percentile(one, 50), figures.Percentile(few, 50)
			all = append(all, figures.Figure{
				Name:     "one pod among 50,000 against one among 500: event to row, p50",
				Measured: fmt.Sprintf("%.2f (%s, %s)", float64(o)/float64(f), figures.Short(o), figures.Short(f)),
				Bound:    fmt.Sprintf("at most %g", oneFactor), Within: float64(o) <= oneFactor*float64(f),
			})
		}
	}
	return all, nil
}

// rowsOf measures a cluster of some pods. one are the times of single pods.
func (b *bench) rowsOf(ctx context.Context, pods int) (all []figures.Figure, one []time.Duration, err error) {
	if pods > fewPods {
		f, err := b.startFigure(ctx, pods)
		if err != nil {
			return nil, nil, err
		}
		all = append(all, f)
	}
	n, err := b.newNorthbound(pods, nodesOf(pods))
	if err != nil {
		return all, nil, err
	}
	defer func() { err = errors.Join(err, n.close()) }()
	b.Say("%d pods: choosing and writing", pods)
	if err := n.startAndSettle(ctx); err != nil {
		return all, nil, err
	}
	if pods == manyPods {
		b.Say("%d pods: starting again", pods)
		figs, err := n.restartFigures(ctx, restartBound, restartMemory)
		if err != nil {
			return all, nil, err
		}
		all = append(all, figs...)
		if err := n.startAndSettle(ctx); err != nil {
			return all, nil, err
		}
	}
	b.Say("%d pods: single pods come", pods)
	if one, err = n.bridgeWrites(ctx, pods, onePods, oneLife, oneEvery); err != nil || pods != churnBase {
		return all, one, err
	}
	b.Say("%d pods: 20 pods/s come and go", pods)
	figs, err := n.churnFigures(ctx)
	return append(all, figs...), one, err
}

func nodesOf(pods int) int { return max(10, pods/podsOfEveryNode) }

// startFigure compares the starts of bridges without data with a bare client, which writes the same rows to another database. A
// few pods are written so quickly that one round says little.
func (b *bench) startFigure(ctx context.Context, pods int) (figures.Figure, error) {
	rounds := 1
	if pods < manyPods {
		rounds = startRounds
	}
	var ours, bare time.Duration
	var rates []float64
	for round := range rounds {
		o, c, err := b.startOnce(ctx, pods)
		if err != nil {
			return figures.Figure{}, err
		}
		b.Say("%d pods there at start, round %d of %d: bridge %s, bare client %s", pods, round+1, rounds, figures.Short(o), figures.Short(c))
		ours, bare, rates = ours+o, bare+c, append(rates, float64(c)/float64(o))
	}
	slices.Sort(rates)
	rate, of := rates[rounds/2], time.Duration(rounds)
	return figures.Rate(fmt.Sprintf("%d pods in the API at start, layout node: listed to all NB rows", pods),
		fmt.Sprintf("%.2f of the rate of a bare client in transactions of %d, median of %d (%s, bare %s)", rate, nbcopy.Batch, rounds,
			figures.Short(ours/of), figures.Short(bare/of)), rate, startRate), nil
}

// startOnce starts a bridge, which annotates at its default pace.
func (b *bench) startOnce(ctx context.Context, pods int) (ours, bare time.Duration, err error) {
	n, err := b.newNorthbound(pods, nodesOf(pods))
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, n.close()) }()
	n.annotateQPS = defaultAnnotateQPS
	if ours, err = n.timeStart(ctx); err != nil {
		return 0, 0, err
	}
	if err := n.stopBridge(); err != nil { // it would still annotate
		return 0, 0, err
	}
	bare, err = n.copyRows(ctx)
	return ours, bare, err
}

// copyRows returns the time that a bare client needs for all rows.
func (n *northbound) copyRows(ctx context.Context) (took time.Duration, err error) {
	target, err := ovsdb.Run()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	ports, took, err := nbcopy.Copy(ctx, n.nb.Endpoint(), target.Endpoint())
	if err == nil && ports < n.load.Count {
		err = fmt.Errorf("the database has %d ports, want one for each of %d pods", ports, n.load.Count)
	}
	return took, err
}

// churnFigures compares the bridge, while pods come and go, with a client that writes the row of each pod at once, and with one that
// stores the pod on the disk of the bridge's data before, as the bridge does.
func (n *northbound) churnFigures(ctx context.Context) ([]figures.Figure, error) {
	from := n.load.Count + onePods
	ours, err := n.bridgeWrites(ctx, from, churnPods, churnLife, churnEvery)
	if err != nil {
		return nil, err
	}
	if err := n.stopBridge(); err != nil { // no source of the bridge knows the pods of the clients
		return nil, err
	}
	null, err := n.nullWrites(ctx, from+churnPods, func() error { return nil })
	if err != nil {
		return nil, err
	}
	disk, err := os.Create(filepath.Join(n.dir, "stored"))
	if err != nil {
		return nil, fmt.Errorf("make the file of a client: %w", err)
	}
	defer func() { _ = disk.Close() }()
	stored, err := n.nullWrites(ctx, from+2*churnPods, func() error { return store(disk) })
	if err != nil {
		return nil, err
	}
	p50, p99, bare, durable := figures.Percentile(ours, 50), figures.Percentile(ours, 99), figures.Percentile(null, 50), figures.Percentile(stored, 99)
	return []figures.Figure{{
		Name: "20 pods/s come and go on 5,000: event to row, p99",
		Measured: fmt.Sprintf("%.1f of the p50 of a client that writes each row at once (%s, p50 %s; client p50 %s, p99 %s); aim %s", float64(p99)/float64(bare),
			figures.Short(p99), figures.Short(p50), figures.Short(bare), figures.Short(figures.Percentile(null, 99)), figures.Short(churnAim)),
		Bound: fmt.Sprintf("at most %d", churnFactor), Within: p99 <= churnFactor*bare,
	}, {
		Name: "the same against the p99 of a client that stores each pod on the disk first",
		Measured: fmt.Sprintf("%.2f (client p50 %s, p99 %s)", float64(p99)/float64(durable),
			figures.Short(figures.Percentile(stored, 50)), figures.Short(durable)),
	}}, nil
}

// store appends as many bytes to a file as the bridge stores of a pod, and returns when they are on the disk.
func store(disk *os.File) error {
	if _, err := disk.Write(make([]byte, storedBytes)); err != nil {
		return fmt.Errorf("store a pod: %w", err)
	}
	if err := disk.Sync(); err != nil {
		return fmt.Errorf("store a pod: %w", err)
	}
	return nil
}

// nullWrites lets the same number of pods come and go, whose rows a client writes after it has called before.
func (n *northbound) nullWrites(ctx context.Context, from int, before func() error) ([]time.Duration, error) {
	switches, err := nbrows.Read(ctx, n.nb.Endpoint(), "Logical_Switch")
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(switches, func(row map[string]any) bool { return len(references(row["ports"])) > 1 })
	if at < 0 {
		return nil, errors.New("the bridge has written no switch with ports")
	}
	rows := &bareRows{endpoint: n.nb.Endpoint()}
	for i := range churnPods {
		id := fmt.Sprintf("00000000-0000-4000-8000-%012d", i)
		rows.ports = append(rows.ports, barePort{
			id: id, row: map[string]any{"_uuid": []any{"uuid", id}, "name": n.portOf(from + i)},
			of: []member{{"Logical_Switch", nbrows.ID(switches[at])}},
		})
	}
	known, err := n.comeAndGo(ctx, from, churnPods, churnLife, churnEvery,
		func(i int) error { return errors.Join(before(), rows.insert(ctx, i-from)) },
		func(i int) error { return rows.transact(ctx, rows.ports[i-from].mutations("delete")) })
	if err != nil {
		return nil, err
	}
	return n.since(ctx, known)
}
