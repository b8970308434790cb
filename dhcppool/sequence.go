package dhcppool

import "container/list"

// sequence hands out the members of a range: first those that it never handed out, in order,
// then those that were given back, the oldest first. It does not know which members are in
// use: its caller passes a function that reports whether a member is free. Handing out takes
// amortised constant time.
type sequence[T comparable] struct {
	next, last T
	used       bool // next has passed last
	step       func(T) T
	compare    func(a, b T) int
	first      T

	freed *list.List // of T, the oldest in front
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

// takeFreed hands out the free member that was given back first.
func (s *sequence[T]) takeFreed(free func(T) bool) (T, bool) {
	for e := s.freed.Front(); e != nil; e = s.freed.Front() {
		v := e.Value.(T)
		s.freed.Remove(e)
		delete(s.at, v)
		if free(v) { // else its owner will give it back
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

// giveBack adds a free member. It need not have been handed out by this sequence.
func (s *sequence[T]) giveBack(v T) {
	if s.compare(v, s.first) < 0 || s.compare(v, s.last) > 0 {
		return
	}
	if !s.used && s.compare(v, s.next) >= 0 {
		return // it was not handed out yet
	}
	if e := s.at[v]; e != nil {
		s.freed.MoveToBack(e)
		return
	}
	s.at[v] = s.freed.PushBack(v)
}
