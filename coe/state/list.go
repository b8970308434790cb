package state

import (
	"maps"
	"slices"
)

// list keeps the values of a map in the order of their keys. A returned slice is never
// changed.
type list[K comparable, V any] struct {
	all   []*V // nil: rebuild from the map
	stale []K  // keys of values to insert, replace or delete
}

// few limits the incremental changes of a list to this part of its length. Above it, the list
// is sorted again.
const few = 16

// changed records that the value of a key was changed or deleted.
func (l *list[K, V]) changed(key K) {
	if l.all == nil {
		return
	}
	l.stale = append(l.stale, key)
	if len(l.stale) > len(l.all)/few {
		l.all, l.stale = nil, nil
	}
}

// refresh returns the current values of the map.
func (l *list[K, V]) refresh(from map[K]*V, key func(*V) K, compare func(a, b K) int) []*V {
	if l.all == nil {
		l.all = slices.SortedFunc(maps.Values(from), func(a, b *V) int { return compare(key(a), key(b)) })
		return l.all
	}
	if len(l.stale) == 0 {
		return l.all
	}
	l.all = slices.Grow(slices.Clone(l.all), len(l.stale))
	for _, k := range l.stale {
		n, found := slices.BinarySearchFunc(l.all, k, func(v *V, k K) int { return compare(key(v), k) })
		switch now := from[k]; {
		case now == nil && found:
			l.all = slices.Delete(l.all, n, n+1)
		case now != nil && found:
			l.all[n] = now
		case now != nil:
			l.all = slices.Insert(l.all, n, now)
		}
	}
	l.stale = nil
	return l.all
}
