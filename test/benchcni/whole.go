package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
	"github.com/coe-bridge/coe-bridge/test/figures"
)

const (
	// whole is how many pods are plugged in whole, wholeRound of them at a turn.
	whole      = 160
	wholeRound = 40
	// above is how much longer than bare rows an ADD may take.
	above = 50 * time.Millisecond
)

// measureWhole plugs pods in the moment that they are posted, by turns with bare rows in
// the northbound database for ports that are there.
func measureWhole(ctx context.Context, b *bench) (all []figures.Figure, err error) {
	w, err := newWorld(ctx, b, host)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	bare, err := newBareRows(ctx, w)
	if err != nil {
		return nil, err
	}
	defer bare.client.Close()
	first, err := w.plugFirst(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, first()) }()
	var ours, theirs []time.Duration
	for begin := 0; begin < whole; begin += wholeRound {
		took, err := bare.install(ctx, begin, begin+wholeRound)
		if err != nil {
			return nil, err
		}
		theirs = append(theirs, took...)
		if took, err = w.plugWhole(ctx, begin, begin+wholeRound); err != nil {
			return nil, err
		}
		ours = append(ours, took...)
		b.say("plugged %d in whole", begin+wholeRound)
	}
	steps, err := w.steps(ctx, host)
	if err != nil {
		return nil, err
	}
	b.say("steps on average: %s", steps)
	slices.Sort(ours)
	slices.Sort(theirs)
	for _, p := range []int{50, 99} {
		reference := figures.Percentile(theirs, p)
		all = append(all, figures.AtMost(fmt.Sprintf("ADD whole, from the moment that the pod is posted, %d at a time, p%d; bare rows in NB: %s", atOnce, p, figures.Short(reference)),
			figures.Percentile(ours, p), reference+above))
	}
	return all, nil
}

// plugFirst plugs one pod in, as bareRows has one port: the first on a switch takes longer,
// and with the last the switch goes. undo plugs it out.
func (w *world) plugFirst(ctx context.Context) (undo func() error, err error) {
	s, p := w.sandbox("2", whole), w.plugin(host)
	if err := addNamespaces(s.netns); err != nil {
		return nil, err
	}
	err = w.post(ctx, host, "2", whole)
	if err == nil {
		_, err = p.each(ctx, "ADD", []sandbox{s}, nil)
	}
	undo = func() error {
		_, err := p.each(ctx, "DEL", []sandbox{s}, nil)
		return errors.Join(err, removeNamespaces(s.netns))
	}
	if err != nil {
		return nil, errors.Join(err, undo())
	}
	return undo, nil
}

// plugWhole posts pods and plugs each in at once.
func (w *world) plugWhole(ctx context.Context, begin, end int) (took []time.Duration, err error) {
	var all []sandbox
	var names []string
	for i := begin; i < end; i++ {
		s := w.sandbox("2", i)
		all, names = append(all, s), append(names, s.netns)
	}
	if err := addNamespaces(names...); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, removeNamespaces(names...)) }()
	p := w.plugin(host)
	took, err = p.each(ctx, "ADD", all, func(i int) error { return w.post(ctx, host, "2", begin+i) })
	if err != nil {
		return nil, err
	}
	if _, err := p.each(ctx, "DEL", all, nil); err != nil {
		return nil, err
	}
	for i := begin; i < end; i++ {
		if err := w.ask(ctx, "DELETE", "/restconf/config/pod:coe/pods/"+uid("2", i), ""); err != nil {
			return nil, err
		}
	}
	return took, nil
}

// bareRows writes logical switch ports and nothing else.
type bareRows struct {
	*world
	client client.Client
}

const bareSwitch = "bare"

func newBareRows(ctx context.Context, w *world) (*bareRows, error) {
	tables, err := nb.FullDatabaseModel()
	if err != nil {
		return nil, err
	}
	c, err := client.NewOVSDBClient(tables, client.WithEndpoint(w.lab.NB.Remote))
	if err == nil {
		err = c.Connect(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("connect to the northbound database: %w", err)
	}
	b := &bareRows{w, c}
	if _, err := w.lab.NBCtl(ctx, "ls-add", bareSwitch); err != nil {
		return nil, err
	}
	_, err = b.install(ctx, whole, whole+1) // the first on a switch takes longer
	return b, err
}

func bareName(n int) string { return fmt.Sprintf("bare-%d", n) }

// install plugs ports into the switch, then writes their rows, so many at a time, and
// tells how long it takes from the row until OVN has installed it. It removes both.
func (b *bareRows) install(ctx context.Context, begin, end int) ([]time.Duration, error) {
	var add, remove []string
	for n := begin; n < end; n++ {
		add = append(add, "--", "add-port", "br-int", bareName(n), "--", "set", "Interface", bareName(n), "type=internal", "external_ids:iface-id="+bareName(n))
		remove = append(remove, "--", "del-port", "br-int", bareName(n))
	}
	h := b.lab.Host(host)
	if _, err := h.VSCtl(ctx, add[1:]...); err != nil {
		return nil, err
	}
	took, errs := make([]time.Duration, end-begin), make([]error, end-begin)
	slots := make(chan struct{}, atOnce)
	var running sync.WaitGroup
	for i := range took {
		slots <- struct{}{}
		running.Go(func() {
			took[i], errs[i] = b.row(ctx, begin+i)
			<-slots
		})
	}
	running.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	for n := begin; n < end; n++ {
		if _, err := b.lab.NBCtl(ctx, "lsp-del", bareName(n)); err != nil {
			return nil, err
		}
	}
	_, err := h.VSCtl(ctx, remove[1:]...)
	return took, err
}

// row writes the row of one port, and waits until OVN has installed it.
func (b *bareRows) row(ctx context.Context, n int) (time.Duration, error) {
	address := fmt.Sprintf("02:ba:00:00:%02x:%02x 10.77.%d.%d", n>>8, n&255, n>>8, n&255)
	port := &nb.LogicalSwitchPort{UUID: "port", Name: bareName(n), Addresses: []string{address}, PortSecurity: []string{address}}
	begun := time.Now()
	ops, err := b.client.Create(port)
	if err != nil {
		return 0, err
	}
	ops = append(ops, ovsdb.Operation{
		Op: ovsdb.OperationMutate, Table: "Logical_Switch", Where: []ovsdb.Condition{ovsdb.NewCondition("name", ovsdb.ConditionEqual, bareSwitch)},
		Mutations: []ovsdb.Mutation{*ovsdb.NewMutation("ports", ovsdb.MutateOperationInsert, ovsdb.OvsSet{GoSet: []any{ovsdb.UUID{GoUUID: "port"}}})},
	})
	results, err := b.client.Transact(ctx, ops...)
	if err == nil {
		_, err = ovsdb.CheckOperationResults(results, ops)
	}
	if err != nil {
		return 0, fmt.Errorf("write the row of port %s: %w", bareName(n), err)
	}
	_, installed, err := b.watch[host].await(ctx, bareName(n))
	return installed.Sub(begun), err
}
