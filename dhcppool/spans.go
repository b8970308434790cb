package dhcppool

import (
	"net/netip"
	"slices"

	"go4.org/netipx"
)

// spans is a set of blocks that do not overlap, sorted by address.
type spans []*block

// search returns the index of p, or where to insert it.
func (s spans) search(p netip.Prefix) (int, bool) {
	return slices.BinarySearchFunc(s, p, func(b *block, p netip.Prefix) int {
		return b.Prefix.Addr().Compare(p.Addr())
	})
}

// overlap returns a block that overlaps p, or nil if there is none.
func (s spans) overlap(p netip.Prefix) *block {
	i, _ := s.search(p)
	if i < len(s) && s[i].Prefix.Overlaps(p) {
		return s[i]
	}
	if i > 0 && s[i-1].Prefix.Overlaps(p) {
		return s[i-1]
	}
	return nil
}

func (s spans) insert(b *block) spans {
	i, _ := s.search(b.Prefix)
	return slices.Insert(s, i, b)
}

func (s spans) remove(b *block) spans {
	i, found := s.search(b.Prefix)
	if !found || s[i] != b {
		return s
	}
	return slices.Delete(s, i, i+1)
}

// after returns the first prefix of the given length after p; an invalid prefix at the end of
// the address space.
func after(p netip.Prefix, bits int) netip.Prefix {
	next := netipx.PrefixLastIP(p).Next()
	if !next.IsValid() {
		return netip.Prefix{}
	}
	aligned := netip.PrefixFrom(next, bits).Masked()
	if aligned.Addr() == next {
		return aligned
	}
	return after(aligned, bits)
}
