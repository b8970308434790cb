package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"reflect"
	"strconv"
)

// writer makes random requests about entries of its own, and keeps account of
// what the bridge has acknowledged.
type writer struct {
	random  *rand.Rand
	number  int
	entries []*entry
	groups  [][]*entry // created by one request that was not answered
	acked   int
	refused int
}

// entry is an entry of a list, and what may be there.
type entry struct {
	path, container string
	make            func(*writer) object
	broken          func() object // a body that must be refused
	// may has the bodies that may be there, nil for none: more than one after a
	// request that was not answered.
	may []object
}

func newWriter(number int, seed uint64) *writer {
	w := &writer{random: rand.New(rand.NewPCG(seed, uint64(number))), number: number}
	for i := range 16 {
		w.entries = append(w.entries, w.podEntry(i))
	}
	for i := range 4 {
		w.entries = append(w.entries, w.serviceEntry(i))
	}
	w.entries = append(w.entries, w.poolEntry())
	return w
}

// loadNodes are the addresses of the nodes of a load's pods.
var loadNodes = []string{"192.168.33.11", "192.168.33.12", "192.168.33.13"}

func (w *writer) namespaces() []string {
	return []string{"default", "shared", "own-" + strconv.Itoa(w.number)}
}

func pick[T any](w *writer, from []T) T { return from[w.random.IntN(len(from))] }

func (w *writer) podUID(i int) string { return uid("a", w.number*100+i) }

func (w *writer) podEntry(i int) *entry {
	p := aPod{uid: w.podUID(i), name: fmt.Sprintf("pod-%d-%d", w.number, i)}
	return &entry{
		path: podPath(p.uid), container: "pod:coe", may: []object{nil},
		make: func(w *writer) object {
			p := p
			p.namespace, p.node = pick(w, w.namespaces()), pick(w, loadNodes)
			return p.body()
		},
		broken: func() object {
			p := p
			p.namespace, p.node = "refused", "not an address"
			return p.body()
		},
	}
}

func (w *writer) serviceEntry(i int) *entry {
	s := aService{
		uid: uid("b", w.number*100+i), name: fmt.Sprintf("service-%d-%d", w.number, i), port: 80,
		address: fmt.Sprintf("10.96.%d.%d", w.number, 10+i),
	}
	return &entry{
		path: servicePath(s.uid), container: "service:service-information", may: []object{nil},
		make: func(w *writer) object {
			s := s
			s.namespace, s.target = pick(w, w.namespaces()), strconv.Itoa(8000+w.random.IntN(1000))
			for n := range w.random.IntN(4) {
				s.endpoints = append(s.endpoints, w.podUID(n*4+w.random.IntN(4)))
			}
			return s.body()
		},
		broken: func() object {
			s := s
			s.port = 123456
			return s.body()
		},
	}
}

func (w *writer) poolEntry() *entry {
	p := addressPool{network: "own-" + strconv.Itoa(w.number), subnet: fmt.Sprintf("10.%d.0.0/17", 60+w.number)}
	return &entry{
		path: poolPath(p.network), container: "dhcp_allocation_pool:dhcp_allocation_pool", may: []object{nil},
		make: func(w *writer) object {
			p := p
			p.dns = []string{fmt.Sprintf("10.96.0.%d", 1+w.random.IntN(200))}
			return p.body()
		},
		broken: func() object {
			p := p
			p.gateway = "10.200.0.1" // outside
			return p.body()
		},
	}
}

// run writes until the bridge does not answer, which is not an error.
func (w *writer) run(ctx context.Context, r rest) error {
	for ctx.Err() == nil {
		answered, err := w.step(ctx, r)
		if err != nil || !answered {
			return err
		}
	}
	return nil
}

// step makes one request; an error is an answer that can't be right.
func (w *writer) step(ctx context.Context, r rest) (answered bool, err error) {
	e := pick(w, w.entries)
	switch n := w.random.IntN(20); {
	case n < 9:
		body := e.make(w)
		return w.request(ctx, r, http.MethodPut, e.path, body, e.put, []object{body}, e)
	case n < 12:
		return w.request(ctx, r, http.MethodDelete, e.path, nil, e.delete, []object{nil}, e)
	case n < 15:
		body := e.make(w)
		return w.request(ctx, r, http.MethodPost, e.container, body, e.post, []object{body}, e)
	case n < 18:
		return w.postSeveral(ctx, r)
	default:
		return w.request(ctx, r, http.MethodPut, e.path, e.broken(), refusal, e.may, e)
	}
}

// request makes a request that leaves each of the entries as its body in after,
// if it is acknowledged.
func (w *writer) request(
	ctx context.Context, r rest, method, path string, body object, judge func(status int) (done bool, err error), after []object, entries ...*entry,
) (answered bool, err error) {
	var sent any
	if body != nil {
		sent = body
	}
	status, answer, err := r.do(ctx, method, "config/"+path, sent)
	if err != nil {
		for i, e := range entries {
			e.may = append(e.may, after[min(i, len(after)-1)])
		}
		if len(entries) > 1 {
			w.groups = append(w.groups, entries)
		}
		return false, nil
	}
	done, err := judge(status)
	if err != nil {
		return true, fmt.Errorf("%s %s: %d %s: %w", method, path, status, answer, err)
	}
	if !done {
		w.refused++
		return true, nil
	}
	w.acked++
	for i, e := range entries {
		e.may = []object{after[i]}
	}
	return true, nil
}

// The judges say whether an answer acknowledges the request, and whether it is
// one that can be given. While a writer writes it knows what is there.

func (e *entry) present() bool { return e.may[0] != nil }

var errUnexpected = errors.New("no answer to what is there")

func (e *entry) put(status int) (bool, error) {
	if want := map[bool]int{true: http.StatusOK, false: http.StatusCreated}[e.present()]; status != want {
		return false, errUnexpected
	}
	return true, nil
}

func (e *entry) delete(status int) (bool, error) {
	return e.oneOf(status, http.StatusOK, http.StatusNotFound, e.present())
}

func (e *entry) post(status int) (bool, error) {
	return e.oneOf(status, http.StatusNoContent, http.StatusConflict, !e.present())
}

func (e *entry) oneOf(status, done, not int, can bool) (bool, error) {
	if can && status == done {
		return true, nil
	}
	if !can && status == not {
		return false, nil
	}
	return false, errUnexpected
}

func refusal(status int) (bool, error) {
	if status != http.StatusBadRequest {
		return false, errors.New("it must be refused")
	}
	return false, nil
}

// postSeveral POSTs several pods in one body: all or none.
func (w *writer) postSeveral(ctx context.Context, r rest) (bool, error) {
	from := w.random.IntN(13)
	entries := w.entries[from : from+3] // pods
	var pods []object
	bodies := make([]object, len(entries))
	free := true
	for i, e := range entries {
		bodies[i] = e.make(w)
		pods = append(pods, bodies[i]["pods"].([]object)...)
		free = free && !e.present()
	}
	judge := func(status int) (bool, error) {
		return entries[0].oneOf(status, http.StatusNoContent, http.StatusConflict, free)
	}
	if !free {
		// Nothing of it may be there after: what is known stays.
		for i, e := range entries {
			bodies[i] = e.may[0]
		}
	}
	return w.request(ctx, r, http.MethodPost, "pod:coe", object{"pods": pods}, judge, bodies, entries...)
}

// settle reads what is there and compares it with what was acknowledged.
func (w *writer) settle(ctx context.Context, r rest) error {
	before := map[*entry]int{}
	for _, e := range w.entries {
		status, answer, err := r.do(ctx, http.MethodGet, "config/"+e.path, nil)
		if err != nil {
			return err
		}
		n, err := e.settle(status, answer)
		if err != nil {
			return err
		}
		before[e] = n
	}
	for _, group := range w.groups {
		for _, e := range group {
			if before[e] != before[group[0]] {
				return fmt.Errorf("%s and %s were in one request: only one of them is there", e.path, group[0].path)
			}
		}
	}
	w.groups = nil
	return nil
}

// settle takes up which of the bodies that may be there is.
func (e *entry) settle(status int, answer string) (int, error) {
	var got any
	switch status {
	case http.StatusOK:
		if err := json.Unmarshal([]byte(answer), &got); err != nil {
			return 0, err
		}
	case http.StatusNotFound:
	default:
		return 0, fmt.Errorf("GET %s: %d %s", e.path, status, answer)
	}
	for i, body := range e.may {
		if reflect.DeepEqual(plain(body), got) {
			e.may = []object{body}
			return i, nil
		}
	}
	return 0, fmt.Errorf("GET %s: %d %s: want one of %v", e.path, status, answer, e.may)
}

// plain is a body as decoded JSON; nil for none.
func plain(body object) (out any) {
	if body == nil {
		return nil
	}
	raw, err := json.Marshal(body)
	if err == nil {
		err = json.Unmarshal(raw, &out)
	}
	if err != nil {
		return err
	}
	return out
}
