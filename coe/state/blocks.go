package state

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/coe"
)

type blockKey struct {
	elan   string
	prefix netip.Prefix
}

func keyOf(b *coe.Block) blockKey { return blockKey{b.ELAN, b.Prefix} }

func (k blockKey) compare(other blockKey) int {
	return cmp.Or(strings.Compare(k.elan, other.elan), k.prefix.Compare(other.prefix))
}

// PutBlock adds or replaces a block of an elan-instance.
func (tx *Tx) PutBlock(namespace string, b *coe.Block) {
	tx.changeBlock(namespace, keyOf(b), b)
}

// DeleteBlock deletes a block.
func (tx *Tx) DeleteBlock(namespace, elan string, prefix netip.Prefix) {
	tx.changeBlock(namespace, blockKey{elan, prefix}, nil)
}

func (tx *Tx) changeBlock(namespace string, key blockKey, now *coe.Block) {
	ns := tx.chosen(namespace)
	ns.shownBlocks.changed(key)
	tx.store.shownBlocks, tx.blocked = nil, true
	old := ns.blocks[key]
	delete(ns.blocks, key)
	if now != nil {
		ns.blocks[key] = now
	}
	tx.store.replaceBlock(old, now)
}

// replaceBlock replaces a block in the list of its node. old is nil for a new block, now for a deleted one.
func (s *Store) replaceBlock(old, now *coe.Block) {
	one := cmp.Or(old, now)
	if one == nil || !one.Node().IsValid() {
		return
	}
	all := slices.Clone(s.blocks[one.Node()])
	if old != nil {
		all = slices.DeleteFunc(all, func(b *coe.Block) bool { return b == old })
	}
	if now != nil {
		all = append(all, now)
	}
	s.blocks[one.Node()] = all
	if len(all) == 0 {
		delete(s.blocks, one.Node())
	}
}

// allBlocks returns the blocks of all namespaces by node. The caller holds the lock.
func (s *Store) allBlocks() map[netip.Addr][]*coe.Block {
	if s.shownBlocks == nil {
		s.shownBlocks = maps.Clone(s.blocks)
	}
	return s.shownBlocks
}
