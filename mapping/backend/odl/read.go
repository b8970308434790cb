package odl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// readAll reads all that is ours.
func (s *session) readAll(ctx context.Context) (*mirror, error) {
	m := newMirror(s.form)
	var (
		mu      sync.Mutex
		absence absence
	)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err := together(ctx, s.parallel(), listCount+1, func(ctx context.Context, l int) (err error) {
		defer func() {
			if err != nil {
				cancel(err) // it is of no use to read the others
			}
		}()
		var (
			entries []entry
			there   bool
		)
		if l == listCount {
			m.identity, err = s.readIdentity(ctx)
			there = m.identity != ""
		} else {
			there, err = s.readList(ctx, &s.lists[l], func(e entry) {
				if m.mayBeOurs(l, e) {
					e.tidy()
					entries = append(entries, e.own())
				}
			})
		}
		if err == nil && !there {
			err = absence.settle(func() error {
				_, err := s.ready(ctx)
				return err
			})
		}
		mu.Lock()
		defer mu.Unlock()
		for _, e := range entries {
			m.put(unitAt(l, e.key()), l, e)
		}
		return err
	})
	if err != nil {
		return nil, context.Cause(ctx) // the first
	}
	m.keepOurs()
	return m, nil
}

// absence is about what is said not to be there: so says too a controller that is going down or
// coming up.
type absence struct {
	mu    sync.Mutex
	begun time.Time // when the controller was asked last that was ready
}

// settle asks whether the controller is ready, unless somebody has since settle was called.
func (a *absence) settle(ready func() error) error {
	told := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.begun.After(told) {
		return nil
	}
	begun := time.Now()
	err := ready()
	if err == nil {
		a.begun = begun
	}
	return err
}

// parallel is how many requests may be under way at once.
func (s *session) parallel() int {
	if s.dialect.together {
		return s.cfg.Parallel
	}
	return 1
}

// readList reads the entries of a list; there is false where not even its container is.
func (s *session) readList(ctx context.Context, l *list, add func(entry)) (there bool, err error) {
	q := s.request(http.MethodGet, s.dialect.container(l), nil)
	q.timeout = s.cfg.ReadTimeout
	err = s.send(ctx, q, func(body io.Reader) error {
		if err := decodeList(body, l, add); err != nil {
			return fmt.Errorf("read %s: %w", l.top(), err)
		}
		return nil
	})
	var answer *answerError
	switch {
	case err == nil:
		return true, nil
	case !errors.As(err, &answer):
		return false, err
	case s.dialect.missing(answer):
		return false, nil
	case s.dialect.opaque && answer.status == http.StatusInternalServerError:
		return false, s.makeContainer(ctx, l, err)
	}
	return false, err
}

// makeContainer creates a container that can't be read, empty. That the controller does so
// is proof that it was not there; if not, the reading failed for another reason.
func (s *session) makeContainer(ctx context.Context, l *list, failure error) error {
	body := fmt.Appendf(nil, "{%q:{}}", l.top())
	if err := s.send(ctx, s.request(http.MethodPost, s.dialect.data, body), nil); err != nil {
		return errors.Join(failure, err)
	}
	return nil
}

// readEntry reads an entry; nil where it is not there.
func (s *session) readEntry(ctx context.Context, l *list, key string) (entry, error) {
	var found entry
	q := s.request(http.MethodGet, s.dialect.entry(l, key), nil)
	q.small = true
	err := s.send(ctx, q, func(body io.Reader) error {
		return decodeEntries(body, l, func(e entry) {
			if e.key() == key {
				found = e
			}
		})
	})
	var answer *answerError
	if errors.As(err, &answer) && s.dialect.missing(answer) {
		return nil, nil
	}
	return found, err
}

// fewEntries is how many entries are read one by one, rather than with all of their list.
const fewEntries = 16

// look reads what there is under keys of a list, with what is another's.
func (s *session) look(ctx context.Context, l *list, keys []string) (map[string]entry, error) {
	found := make(map[string]entry, len(keys))
	if s.dialect.opaque || len(keys) > fewEntries {
		for _, k := range keys {
			found[k] = nil
		}
		_, err := s.readList(ctx, l, func(e entry) {
			if _, wanted := found[e.key()]; wanted {
				e.tidy()
				found[e.key()] = e
			}
		})
		return found, err
	}
	var mu sync.Mutex
	err := together(ctx, s.parallel(), len(keys), func(ctx context.Context, i int) error {
		e, err := s.readEntry(ctx, l, keys[i])
		if e == nil || err != nil {
			return err
		}
		e.tidy()
		mu.Lock()
		defer mu.Unlock()
		found[keys[i]] = e
		return nil
	})
	return found, err
}

// decodeList reads a container with its list, an entry at a time: what is not kept takes no
// memory.
func decodeList(body io.Reader, l *list, add func(entry)) error {
	d := newDecoder(body)
	found := false
	err := members(d, func(name string) error {
		if !named(name, l.module, l.container) {
			return d.SkipValue()
		}
		found = true
		return members(d, func(name string) error {
			if !named(name, l.module, l.name) {
				return d.SkipValue()
			}
			return elements(d, l, add)
		})
	})
	return finish(d, err, found, l.top())
}

// decodeEntries reads the answer to a request for an entry.
func decodeEntries(body io.Reader, l *list, add func(entry)) error {
	d := newDecoder(body)
	found := false
	err := members(d, func(name string) error {
		if !named(name, l.module, l.name) {
			return d.SkipValue()
		}
		found = true
		return elements(d, l, add)
	})
	return finish(d, err, found, l.module+":"+l.name)
}

// newDecoder returns a decoder that fails rather than hold a value of any length.
func newDecoder(body io.Reader) *jsontext.Decoder {
	f := &frugal{body: body}
	f.decoder = jsontext.NewDecoder(f, jsontext.AllowDuplicateNames(true))
	return f.decoder
}

// maxHeld bounds what a decoder holds of an answer: of what is read in pieces, the largest.
const maxHeld = 4 << 20

// frugal reads a body for a decoder that makes progress.
type frugal struct {
	body    io.Reader
	decoder *jsontext.Decoder
	read    int64
}

func (f *frugal) Read(p []byte) (int, error) {
	if f.read-f.decoder.InputOffset() > maxHeld {
		return 0, errTooLong
	}
	n, err := f.body.Read(p)
	f.read += int64(n)
	return n, err
}

// finish sees that the answer ended where it should, and held what was asked for.
func finish(d *jsontext.Decoder, err error, found bool, name string) error {
	if err != nil {
		return err
	}
	if err := ended(d); err != nil {
		return err
	}
	if !found {
		return fmt.Errorf("the answer holds no %s", name)
	}
	return nil
}

// ended sees that nothing follows.
func ended(d *jsontext.Decoder) error {
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		return errors.New("the answer goes on after its end")
	}
	return nil
}

// named tells whether a member is the one of a module, whose name may stand before it.
func named(member, module, name string) bool {
	rest, prefixed := strings.CutPrefix(member, module+":")
	return rest == name && (prefixed || !strings.Contains(member, ":"))
}

// members reads an object; each is called before the value of each member.
func members(d *jsontext.Decoder, each func(name string) error) error {
	if err := open(d, '{'); err != nil {
		return err
	}
	for d.PeekKind() != '}' {
		name, err := d.ReadToken()
		if err != nil {
			return err
		}
		if err := each(name.String()); err != nil {
			return err
		}
	}
	_, err := d.ReadToken()
	return err
}

// elements reads the entries of a list.
func elements(d *jsontext.Decoder, l *list, add func(entry)) error {
	if err := open(d, '['); err != nil {
		return err
	}
	for d.PeekKind() != ']' {
		e := l.fresh()
		if err := json.UnmarshalDecode(d, e); err != nil {
			return err
		}
		add(e)
	}
	_, err := d.ReadToken()
	return err
}

func open(d *jsontext.Decoder, kind jsontext.Kind) error {
	token, err := d.ReadToken()
	if err == nil && token.Kind() != kind {
		err = fmt.Errorf("the answer has %s where %s is expected", token.Kind(), kind)
	}
	return err
}

// together calls do for each of n numbers, some at a time, and waits; after the first error
// no more are begun. Those under way are not told to end: what they write could come to be
// after the next reading.
func together(ctx context.Context, some, n int, do func(ctx context.Context, i int) error) error {
	var (
		wg      sync.WaitGroup
		failure atomic.Pointer[error]
	)
	goes := func() bool { return failure.Load() == nil && ctx.Err() == nil }
	tickets := make(chan struct{}, some)
	for i := 0; i < n && goes(); i++ {
		tickets <- struct{}{}
		wg.Go(func() {
			defer func() { <-tickets }()
			if !goes() {
				return
			}
			if err := do(ctx, i); err != nil {
				failure.CompareAndSwap(nil, &err)
			}
		})
	}
	wg.Wait()
	if err := failure.Load(); err != nil {
		return *err
	}
	return context.Cause(ctx)
}
