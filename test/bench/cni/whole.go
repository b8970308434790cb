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
	"github.com/coe-bridge/coe-bridge/test/bench/figures"
)

const (
	// whole is the number of pods that are plugged in as a whole, wholeRound in each round.
	whole      = 160
	wholeRound = 40
	// above bounds the additional duration of an ADD in relation to bare rows.
	above = 50 * time.Millisecond
)

// measureWhole plugs in known pods, as kubelet does. It alternates with bare rows in the
// northbound database for existing ports, and with pods that are posted when they are plugged in.
// It also alternates with the reference plugins. These create only links and addresses, and wait
// for no network.
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
	if err := addNamespaces(referenceHost); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, removeNamespaces(referenceHost)) }()
	var known, posted, bareTook, theirs []time.Duration
	for begin := 0; begin < whole; begin += wholeRound {
		took, err := bare.install(ctx, begin, begin+wholeRound)
		if err != nil {
			return nil, err
		}
		bareTook = append(bareTook, took...)
		if took, err = w.plugKnown(ctx, begin, begin+wholeRound); err != nil {
			return nil, err
		}
		known = append(known, took...)
		if took, err = w.plugPosted(ctx, begin, begin+wholeRound); err != nil {
			return nil, err
		}
		posted = append(posted, took...)
		if took, err = w.plugReference(ctx, begin, begin+wholeRound); err != nil {
			return nil, err
		}
		theirs = append(theirs, took...)
		b.say("plugged %d in whole", begin+wholeRound)
	}
	steps, err := w.steps(ctx, host)
	if err != nil {
		return nil, err
	}
	b.say("steps on average: %s", steps)
	for _, took := range [][]time.Duration{known, posted, bareTook, theirs} {
		slices.Sort(took)
	}
	for _, p := range []int{50, 99} {
		reference := figures.Percentile(bareTook, p)
		all = append(all,
			figures.AtMost(fmt.Sprintf("ADD whole, %d at a time, p%d; bare rows in NB: %s", atOnce, p, figures.Short(reference)), figures.Percentile(known, p), reference+above),
			figures.Unbound(fmt.Sprintf("ADD whole of a pod that was posted in that moment, %d at a time, p%d", atOnce, p), figures.Short(figures.Percentile(posted, p))),
			figures.Unbound(fmt.Sprintf("ADD whole of bridge + host-local, %d at a time, p%d", atOnce, p), figures.Short(figures.Percentile(theirs, p))))
	}
	return all, nil
}

// plugFirst plugs one pod in before the measurement, because the first pod on a switch takes
// longer, and the switch is removed with the last one. bareRows also has one port more. undo
// unplugs the pod.
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

// plugKnown plugs in pods that the agent knows.
func (w *world) plugKnown(ctx context.Context, begin, end int) (took []time.Duration, err error) {
	for i := begin; i < end; i++ {
		if err := w.post(ctx, host, "2", i); err != nil {
			return nil, err
		}
	}
	if err := w.awaitInterfaces(ctx, 1+end-begin); err != nil {
		return nil, err
	}
	return w.plugAll(ctx, begin, end, nil)
}

// plugPosted posts pods and plugs each in at once.
func (w *world) plugPosted(ctx context.Context, begin, end int) (took []time.Duration, err error) {
	return w.plugAll(ctx, begin, end, func(i int) error { return w.post(ctx, host, "2", begin+i) })
}

// plugAll runs first before each pod and plugs the pod in. Then it unplugs all pods.
func (w *world) plugAll(ctx context.Context, begin, end int, first func(i int) error) ([]time.Duration, error) {
	var all []sandbox
	for i := begin; i < end; i++ {
		all = append(all, w.sandbox("2", i))
	}
	took, err := w.plugin(host).addAndDelete(ctx, all, first)
	if err != nil {
		return nil, err
	}
	for i := begin; i < end; i++ {
		if err := w.ask(ctx, "DELETE", "/restconf/config/pod:coe/pods/"+uid("2", i), ""); err != nil {
			return nil, err
		}
	}
	return took, w.awaitInterfaces(ctx, 1)
}

// plugReference plugs pods in and out with the reference plugins.
func (w *world) plugReference(ctx context.Context, begin, end int) ([]time.Duration, error) {
	var all []sandbox
	for i := begin; i < end; i++ {
		all = append(all, w.referenceSandbox(i))
	}
	return w.referencePlugin().addAndDelete(ctx, all, nil)
}

// addAndDelete creates sandboxes, and runs first and ADD for each. Then it undoes all this. It
// returns the duration of each ADD.
func (p plugin) addAndDelete(ctx context.Context, all []sandbox, first func(i int) error) (took []time.Duration, err error) {
	var names []string
	for _, s := range all {
		names = append(names, s.netns)
	}
	if err := addNamespaces(names...); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, removeNamespaces(names...)) }()
	if took, err = p.each(ctx, "ADD", all, first); err != nil {
		return nil, err
	}
	_, err = p.each(ctx, "DEL", all, nil)
	return took, err
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
	_, err = b.install(ctx, whole, whole+1) // the first port on a switch takes longer
	return b, err
}

func bareName(n int) string { return fmt.Sprintf("bare-%d", n) }

// install plugs ports into the switch, and then writes their rows, atOnce at the same time. It
// returns the duration from each row until OVN has installed its port. Then it removes the rows
// and the ports.
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
