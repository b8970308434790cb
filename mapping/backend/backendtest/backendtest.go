// Package backendtest is the conformance suite of backends. It checks the contract of
// reconcile.Backend with random valid models. It also provides the models for other
// tests, and a wrapper that makes a backend fail.
package backendtest

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
	"github.com/coe-bridge/coe-bridge/mapping/reconcile"
)

// Backend is the interface that the suite tests.
type Backend = reconcile.Backend

const walkSteps = 40

// Run runs the suite. create must return an empty backend.
func Run(t *testing.T, create func(t *testing.T) Backend) { RunWalks(t, seeds, create) }

// RunWalks is Run with another number of random walks, for slow backends.
func RunWalks(t *testing.T, seeds int, create func(t *testing.T) Backend) {
	t.Run("empty", func(t *testing.T) {
		have, err := create(t).Read(t.Context())
		require.NoError(t, err)
		require.Empty(t, have)
	})
	t.Run("nothing to write", func(t *testing.T) {
		require.NoError(t, create(t).Write(t.Context(), nil))
	})
	t.Run("walk", func(t *testing.T) { walk(t, seeds, create, func(*testing.T, Backend, []netvirt.Change, *rand.Rand) {}) })
	t.Run("walk in two parts", func(t *testing.T) { walk(t, seeds, create, part) })
	t.Run("walk doubled", func(t *testing.T) { walk(t, seeds, create, double) })
	t.Run("every prefix", func(t *testing.T) { everyPrefix(t, create(t)) })
	t.Run("no interface without its ACLs", func(t *testing.T) { failsClosed(t, create(t)) })
	t.Run("swapped addresses", func(t *testing.T) { swapped(t, create(t)) })
	t.Run("cancelled", func(t *testing.T) { cancelled(t, create(t)) })
	t.Run("watch ends", func(t *testing.T) { watchEnds(t, create(t)) })
}

// walk writes a sequence of random models. Before it writes a difference, before may
// write a part of it.
func walk(t *testing.T, seeds int, create func(t *testing.T) Backend, before func(*testing.T, Backend, []netvirt.Change, *rand.Rand)) {
	for seed := range uint64(seeds) {
		w := NewWorld(seed)
		b := create(t)
		for range walkSteps {
			w.Step()
			want := w.ModelFor(b)
			before(t, b, netvirt.Diff(read(t, b), want), w.rng)
			converge(t, b, want)
		}
		w.Clear()
		converge(t, b, w.ModelFor(b))
	}
}

// part writes the first changes, and checks that the backend has them.
func part(t *testing.T, b Backend, changes []netvirt.Change, rng *rand.Rand) {
	if len(changes) == 0 {
		return
	}
	want := read(t, b)
	cut := changes[:rng.IntN(len(changes))]
	want.Apply(cut)
	write(t, b, cut)
	Agree(t, want, read(t, b))
}

// double writes the changes twice, and then the first of them again.
func double(t *testing.T, b Backend, changes []netvirt.Change, rng *rand.Rand) {
	write(t, b, changes)
	write(t, b, changes)
	if len(changes) > 0 {
		write(t, b, changes[:rng.IntN(len(changes))])
	}
}

// everyPrefix writes the prefixes of the changes between two models.
func everyPrefix(t *testing.T, b Backend) {
	w := NewWorld(1)
	for range 12 {
		w.Step()
	}
	from := w.ModelFor(b)
	for range 6 {
		w.Step()
	}
	to := w.ModelFor(b)
	for n := 0; n < len(netvirt.Diff(from, to)); n += stride {
		converge(t, b, from)
		changes := netvirt.Diff(read(t, b), to)
		want := read(t, b)
		want.Apply(changes[:n])
		write(t, b, changes[:n])
		Agree(t, want, read(t, b))
		converge(t, b, to)
	}
}

// swapped swaps the addresses of two pods, and gives a pod's name to another pod.
func swapped(t *testing.T, b Backend) {
	w := NewWorld(2)
	for len(w.pods) < 6 {
		w.addPod()
	}
	converge(t, b, w.ModelFor(b))
	for range 10 {
		w.swapAddresses()
		w.renewPod()
		w.movePod()
		converge(t, b, w.ModelFor(b))
	}
}

// failsClosed checks that a new interface is not created without its InterfaceACL, also while the ACL
// in it does not exist. A backend may refuse such an InterfaceACL or write it. An existing interface
// stays.
func failsClosed(t *testing.T, b Backend) {
	w := NewWorld(5)
	w.addPod()
	open := w.ModelFor(b)
	ns := w.pods[0].ns
	acl := netvirt.ACL{Name: ns + ":isolated:ingress", Namespace: ns, Isolates: netvirt.Ingress}
	joins := netvirt.InterfaceACL{
		Interface: netvirt.InterfaceName(ns, w.pods[0].name, "", true), Namespace: ns, SecurityGroups: netvirt.NewNameList(acl.Name),
	}
	isolated := maps.Clone(open)
	isolated.Add(joins)
	port := netvirt.Interface{Name: joins.Interface}.Key()
	err := b.Write(t.Context(), netvirt.Diff(nil, isolated))
	if have := read(t, b); err == nil || have[port] != nil {
		require.Equal(t, joins, have[joins.Key()])
	}

	converge(t, b, open)
	err = b.Write(t.Context(), netvirt.Diff(open, isolated))
	have := read(t, b)
	require.Contains(t, have, port)
	require.Equal(t, err == nil, have[joins.Key()] != nil)
	isolated.Add(acl)
	converge(t, b, isolated)
}

// cancelled checks that a call with a cancelled context does nothing.
func cancelled(t *testing.T, b Backend) {
	w := NewWorld(3)
	w.addPod()
	want := w.ModelFor(b)
	converge(t, b, want)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := b.Read(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, b.Write(ctx, netvirt.Diff(want, netvirt.Model{})), context.Canceled)
	require.Equal(t, want, read(t, b))
}

// watchEnds checks that Watch returns when its context ends, and that it does not report
// the backend's own writes as changes. A prefetched Read has the same result as Read.
func watchEnds(t *testing.T, b Backend) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	changed := make(chan struct{}, 100)
	go func() { done <- b.Watch(ctx, func() { changed <- struct{}{} }) }()
	w := NewWorld(4)
	for range 5 {
		w.Step()
		converge(t, b, w.ModelFor(b))
	}
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	require.Empty(t, changed)

	prefetched, stop := reconcile.Prefetch(t.Context(), b, func() {})
	defer stop()
	have, err := prefetched.Read(t.Context())
	require.NoError(t, err)
	require.Equal(t, read(t, b), have)
}

func read(t *testing.T, b Backend) netvirt.Model {
	t.Helper()
	have, err := b.Read(t.Context())
	require.NoError(t, err)
	if d, ok := b.(reconcile.Divided); ok {
		divided, err := d.ReadByScope(t.Context())
		require.NoError(t, err)
		require.Equal(t, have.ByScope(), divided)
	}
	return have
}

// patience bounds the time in which a backend makes changes that it defers.
const patience = 2 * time.Minute

// write writes changes, and repeats that while the backend defers some.
func write(t *testing.T, b Backend, changes []netvirt.Change) {
	t.Helper()
	require.Eventually(t, func() bool {
		err := b.Write(t.Context(), changes)
		var deferred *netvirt.DeferredError
		if errors.As(err, &deferred) {
			return false
		}
		require.NoError(t, err)
		return true
	}, patience, 10*time.Millisecond)
}

// converge writes a model, and checks that the backend has it.
func converge(t *testing.T, b Backend, want netvirt.Model) {
	t.Helper()
	closed(t, b, want)
	write(t, b, netvirt.Diff(read(t, b), want))
	Agree(t, want, read(t, b))
}

// closed checks that a model has no dangling reference to a kind that the backend writes.
func closed(t *testing.T, b Backend, want netvirt.Model) {
	t.Helper()
	for k, o := range want {
		for _, ref := range o.Refs() {
			if _, found := want[ref]; !found && b.Kinds().Has(ref.Kind) {
				require.Fail(t, "the test's model has a dangling reference", "%s refers to %s", k, ref)
			}
		}
	}
}

// Agree requires that a backend has exactly the objects that were written. It may leave
// out an Interface that is not attached to an elan-instance yet, and the objects of that
// Interface. It may leave out of an InterfaceACL what has no effect: remote groups that do not
// exist or do not admit it and, while the interface has no address, all of them.
func Agree(t testing.TB, want, have netvirt.Model) {
	t.Helper()
	for k, o := range want {
		name, ofInterface := interfaceOf(o)
		_, attached := want[netvirt.Key{Kind: netvirt.KindELANInterface, Name: name}]
		if _, found := have[k]; !found && ofInterface && !attached {
			continue
		}
		if acl, ok := o.(netvirt.InterfaceACL); ok && have[k] == effective(acl, want) {
			continue
		}
		if have[k] != o {
			require.Equal(t, o, have[k], "%s", k)
		}
	}
	for k := range have {
		if _, found := want[k]; !found {
			require.Fail(t, "the backend has an object that was not written", "%s", k)
		}
	}
}

// effective returns the InterfaceACL without what has no effect; nil if nothing remains.
func effective(o netvirt.InterfaceACL, m netvirt.Model) netvirt.Object {
	hasAddress := false
	for k := range m {
		address := k.Kind == netvirt.KindMACEntry || k.Kind == netvirt.KindAdjacency
		hasAddress = hasAddress || address && strings.HasPrefix(k.Name, o.Interface+" ")
	}
	var remote []string
	for _, name := range o.RemoteGroups.All() {
		group, found := m[netvirt.Key{Kind: netvirt.KindRemoteGroup, Name: name}].(netvirt.RemoteGroup)
		if found && group.Admits(o.Namespace) && hasAddress {
			remote = append(remote, name)
		}
	}
	var groups []string
	for _, name := range o.SecurityGroups.All() {
		if !netvirt.IsOfNode(name) || m[netvirt.Key{Kind: netvirt.KindACL, Name: name}] != nil {
			groups = append(groups, name)
		}
	}
	o.SecurityGroups, o.RemoteGroups = netvirt.NewNameList(groups...), netvirt.NewNameList(remote...)
	if o.SecurityGroups == "" && o.RemoteGroups == "" {
		return nil
	}
	return o
}

func interfaceOf(o netvirt.Object) (name string, ok bool) {
	switch o := o.(type) {
	case netvirt.Interface:
		return o.Name, true
	case netvirt.VPNInterface:
		return o.Name, true
	case netvirt.Adjacency:
		return o.Interface, true
	case netvirt.InterfaceACL:
		return o.Interface, true
	}
	return "", false
}
