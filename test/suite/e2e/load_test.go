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

// writer makes random requests about its own entries, and records the acknowledged state of each.
type writer struct {
	random  *rand.Rand
	number  int
	entries []*entry
	groups  [][]*entry // the entries of each request that got no answer
	acked   int
	refused int
}

// entry is an entry of a list, with its possible states.
type entry struct {
	path, container string
	make            func(*writer) object
	broken          func() object // makes a body that must be refused
	// may has the possible bodies of the entry; nil means that the entry does not exist. There
	// are several after a request without an answer.
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

// loadNodes has the addresses of the nodes of a load's pods.
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
			p.gateway = "10.200.0.1" // outside the subnet
			return p.body()
		},
	}
}

// run writes until the bridge does not answer. A missing answer is not an error.
func (w *writer) run(ctx context.Context, r rest) error {
	for ctx.Err() == nil {
		answered, err := w.step(ctx, r)
		if err != nil || !answered {
			return err
		}
	}
	return nil
}

// step makes one request. It returns an error if the answer is wrong.
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

// request makes a request. If it is acknowledged, each entry has its body in after.
func (w *writer) request(
	ctx context.Context, r rest, method, path string, body object, judge func(status int) (done bool, err error), after []object, entries ...*entry,
) (answered bool, err error) {
	var sent any
	if body != nil {
		sent = body
	}
	status, answer, err := r.do(ctx, method, "config/"+path, sent)
	if err != nil || status == http.StatusServiceUnavailable { // nobody knows whether it is written
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

// The judges report whether an answer acknowledges the request, and return an error if the answer is
// wrong. A writer knows the state of its entries while it writes.

func (e *entry) present() bool { return e.may[0] != nil }

var errUnexpected = errors.New("the answer does not match the state of the entries")

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
		return false, errors.New("the request must be refused")
	}
	return false, nil
}

// postSeveral POSTs several pods in one body. The bridge must create all or none.
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
		// The request must not have an effect, so the known state does not change.
		for i, e := range entries {
			bodies[i] = e.may[0]
		}
	}
	return w.request(ctx, r, http.MethodPost, "pod:coe", object{"pods": pods}, judge, bodies, entries...)
}

// settle reads the entries and compares them with their possible states.
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
				return fmt.Errorf("%s and %s were in one request, and only one of them exists", e.path, group[0].path)
			}
		}
	}
	w.groups = nil
	return nil
}

// settle reads the entry, and keeps only the possible body that it has.
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

// plain returns a body as decoded JSON, or nil for no body.
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
