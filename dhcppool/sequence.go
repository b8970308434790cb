package dhcppool

import "container/list"

// sequence hands out the members of a range: those that it never handed out
// first, in order, then those that came back, the one that came back longest
// ago first. It does not know what is in use: its caller says what is free.
// Handing out costs amortised constant time.
type sequence[T comparable] struct {
	next, last T
	used       bool // next has passed last
	step       func(T) T
	compare    func(a, b T) int
	first      T

	freed *list.List // of T, the one that came back longest ago in front
	at    map[T]*list.Element
}

func newSequence[T comparable](first, last T, step func(T) T, compare func(a, b T) int) *sequence[T] {
	return &sequence[T]{
		first: first, next: first, last: last, step: step, compare: compare,
		freed: list.New(), at: map[T]*list.Element{},
	}
}

// takeNew hands out the next free member that was never handed out.
func (s *sequence[T]) takeNew(free func(T) bool) (T, bool) {
	for !s.used {
		v := s.next
		if v == s.last {
			s.used = true
		} else {
			s.next = s.step(v)
		}
		if free(v) {
			return v, true
		}
	}
	var none T
	return none, false
}

// takeFreed hands out the free member that came back longest ago.
func (s *sequence[T]) takeFreed(free func(T) bool) (T, bool) {
	for e := s.freed.Front(); e != nil; e = s.freed.Front() {
		v := e.Value.(T)
		s.freed.Remove(e)
		delete(s.at, v)
		if free(v) { // else whoever has it gives it back one day
			return v, true
		}
	}
	var none T
	return none, false
}

func (s *sequence[T]) take(free func(T) bool) (T, bool) {
	if v, ok := s.takeNew(free); ok {
		return v, true
	}
	return s.takeFreed(free)
}

// giveBack says that v, which need not have been handed out here, is free again.
func (s *sequence[T]) giveBack(v T) {
	if s.compare(v, s.first) < 0 || s.compare(v, s.last) > 0 {
		return
	}
	if !s.used && s.compare(v, s.next) >= 0 {
		return // its turn is still to come
	}
	if e := s.at[v]; e != nil {
		s.freed.MoveToBack(e)
		return
	}
	s.at[v] = s.freed.PushBack(v)
}
