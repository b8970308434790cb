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

	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/codec"
	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/controller"
)

// readAll reads all our entries.
func (s *session) readAll(ctx context.Context) (*codec.Mirror, error) {
	m := codec.NewMirror(s.form)
	var (
		mu      sync.Mutex
		absence absence
	)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err := together(ctx, s.parallel(), codec.ListCount+1, func(ctx context.Context, l int) (err error) {
		defer func() {
			if err != nil {
				cancel(err) // the other lists are not needed any more
			}
		}()
		var (
			entries []codec.Entry
			there   bool
		)
		if l == codec.ListCount {
			m.Identity, err = s.readIdentity(ctx)
			there = m.Identity != ""
		} else {
			there, err = s.readList(ctx, &s.lists[l], func(e codec.Entry) {
				if m.MayBeOurs(l, e) {
					e.Normalize()
					entries = append(entries, e.Own())
				}
			})
		}
		if err == nil && !there {
			err = absence.confirm(func() error {
				_, err := s.ready(ctx)
				return err
			})
		}
		mu.Lock()
		defer mu.Unlock()
		for _, e := range entries {
			m.Put(codec.UnitAt(l, e.Key()), l, e)
		}
		return err
	})
	if err != nil {
		return nil, context.Cause(ctx) // the first
	}
	m.KeepOurs()
	return m, nil
}

// absence checks answers that data does not exist: a controller that starts or stops gives
// the same answer.
type absence struct {
	mu      sync.Mutex
	checked time.Time // start of the last check that found the controller ready
}

// confirm returns an error if the controller is not ready. It does not ask it again if
// another check that began after this call has found it ready.
func (a *absence) confirm(ready func() error) error {
	called := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.checked.After(called) {
		return nil
	}
	started := time.Now()
	err := ready()
	if err == nil {
		a.checked = started
	}
	return err
}

// parallel returns the maximum number of concurrent requests.
func (s *session) parallel() int {
	if s.dialect.Together {
		return s.cfg.Parallel
	}
	return 1
}

// readList reads the entries of a list; there is false if its container does not exist.
func (s *session) readList(ctx context.Context, l *codec.List, add func(codec.Entry)) (there bool, err error) {
	q := s.request(http.MethodGet, s.dialect.Container(l), nil)
	q.Timeout = s.cfg.ReadTimeout
	err = s.Send(ctx, q, func(body io.Reader) error {
		if err := decodeList(body, l, add); err != nil {
			return fmt.Errorf("read %s: %w", l.Top(), err)
		}
		return nil
	})
	var answer *controller.AnswerError
	switch {
	case err == nil:
		return true, nil
	case !errors.As(err, &answer):
		return false, err
	case s.dialect.Missing(answer):
		return false, nil
	case s.dialect.Opaque && answer.Status == http.StatusInternalServerError:
		return false, s.makeContainer(ctx, l, err)
	}
	return false, err
}

// makeContainer creates an empty container after its reading has failed. If this succeeds,
// the container did not exist; else the reading failed for another reason.
func (s *session) makeContainer(ctx context.Context, l *codec.List, failure error) error {
	body := fmt.Appendf(nil, "{%q:{}}", l.Top())
	if err := s.Send(ctx, s.request(http.MethodPost, s.dialect.Data, body), nil); err != nil {
		return errors.Join(failure, err)
	}
	return nil
}

// readEntry reads an entry; it returns nil if there is none.
func (s *session) readEntry(ctx context.Context, l *codec.List, key string) (codec.Entry, error) {
	var found codec.Entry
	q := s.request(http.MethodGet, s.dialect.Entry(l, key), nil)
	q.Small = true
	err := s.Send(ctx, q, func(body io.Reader) error {
		return decodeEntries(body, l, func(e codec.Entry) {
			if e.Key() == key {
				found = e
			}
		})
	})
	var answer *controller.AnswerError
	if errors.As(err, &answer) && s.dialect.Missing(answer) {
		return nil, nil
	}
	return found, err
}

// fewEntries is the largest number of entries that are read one by one. For more, the whole
// list is read.
const fewEntries = 16

// look reads the entries with some keys, including the leaves of other writers. It returns
// nil for a key without an entry.
func (s *session) look(ctx context.Context, l *codec.List, keys []string) (map[string]codec.Entry, error) {
	found := make(map[string]codec.Entry, len(keys))
	if s.dialect.Opaque || len(keys) > fewEntries {
		for _, k := range keys {
			found[k] = nil
		}
		_, err := s.readList(ctx, l, func(e codec.Entry) {
			if _, wanted := found[e.Key()]; wanted {
				e.Normalize()
				found[e.Key()] = e
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
		e.Normalize()
		mu.Lock()
		defer mu.Unlock()
		found[keys[i]] = e
		return nil
	})
	return found, err
}

// decodeList reads a container with its list, one entry at a time, so that entries that are
// not kept take no memory.
func decodeList(body io.Reader, l *codec.List, add func(codec.Entry)) error {
	d := controller.NewDecoder(body)
	found := false
	err := members(d, func(name string) error {
		if !named(name, l.Module, l.Container) {
			return d.SkipValue()
		}
		found = true
		return members(d, func(name string) error {
			if !named(name, l.Module, l.Name) {
				return d.SkipValue()
			}
			return elements(d, l, add)
		})
	})
	return finish(d, err, found, l.Top())
}

// decodeEntries reads the answer to a request for an entry.
func decodeEntries(body io.Reader, l *codec.List, add func(codec.Entry)) error {
	d := controller.NewDecoder(body)
	found := false
	err := members(d, func(name string) error {
		if !named(name, l.Module, l.Name) {
			return d.SkipValue()
		}
		found = true
		return elements(d, l, add)
	})
	return finish(d, err, found, l.Module+":"+l.Name)
}

// finish checks that the answer has ended, and that it contained the requested data.
func finish(d *jsontext.Decoder, err error, found bool, name string) error {
	if err != nil {
		return err
	}
	if err := controller.Ended(d); err != nil {
		return err
	}
	if !found {
		return fmt.Errorf("the answer does not contain %s", name)
	}
	return nil
}

// named reports whether a member has this name, with or without the module as prefix.
func named(member, module, name string) bool {
	rest, prefixed := strings.CutPrefix(member, module+":")
	return rest == name && (prefixed || !strings.Contains(member, ":"))
}

// members reads an object: it calls each with the name of each member, and each reads the
// value.
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
func elements(d *jsontext.Decoder, l *codec.List, add func(codec.Entry)) error {
	if err := open(d, '['); err != nil {
		return err
	}
	for d.PeekKind() != ']' {
		e := l.Fresh()
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

// together calls do for each of n numbers, some at a time, and waits for all calls. After
// the first error it starts no more. It does not cancel running calls: a cancelled write
// could take effect after the next reading.
func together(ctx context.Context, some, n int, do func(ctx context.Context, i int) error) error {
	var (
		wg      sync.WaitGroup
		failure atomic.Pointer[error]
	)
	goOn := func() bool { return failure.Load() == nil && ctx.Err() == nil }
	running := make(chan struct{}, some)
	for i := 0; i < n && goOn(); i++ {
		running <- struct{}{}
		wg.Go(func() {
			defer func() { <-running }()
			if !goOn() {
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
