package controller

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/codec"
)

// ReadList reads the entries of a list; there is false if its container does not exist.
func (s *Session) ReadList(ctx context.Context, l *codec.List, add func(codec.Entry)) (there bool, err error) {
	q := s.Request(http.MethodGet, s.Dialect.container(l), nil)
	q.Timeout = s.client.cfg.ReadTimeout
	err = s.Send(ctx, q, func(body io.Reader) error {
		if err := decodeList(body, l, add); err != nil {
			return fmt.Errorf("read %s: %w", l.Top(), err)
		}
		return nil
	})
	var answer *AnswerError
	switch {
	case err == nil:
		return true, nil
	case !errors.As(err, &answer):
		return false, err
	case s.Missing(err):
		return false, nil
	case s.Dialect.opaque && answer.Status == http.StatusInternalServerError:
		return false, s.makeContainer(ctx, l, err)
	}
	return false, err
}

// makeContainer creates an empty container after its reading has failed. If this succeeds,
// the container did not exist; else the reading failed for another reason.
func (s *Session) makeContainer(ctx context.Context, l *codec.List, failure error) error {
	body := fmt.Appendf(nil, "{%q:{}}", l.Top())
	if err := s.Send(ctx, s.Request(http.MethodPost, s.Dialect.data, body), nil); err != nil {
		return errors.Join(failure, err)
	}
	return nil
}

// readEntry reads an entry; it returns nil if there is none.
func (s *Session) readEntry(ctx context.Context, l *codec.List, key string) (codec.Entry, error) {
	var found codec.Entry
	q := s.Request(http.MethodGet, s.Dialect.entry(l, key), nil)
	q.Small = true
	err := s.Send(ctx, q, func(body io.Reader) error {
		return decodeEntry(body, l, func(e codec.Entry) {
			if e.Key() == key {
				found = e
			}
		})
	})
	if s.Missing(err) {
		return nil, nil
	}
	return found, err
}

// FewEntries is the largest number of entries that are read one by one. For more, the whole
// list is read.
const FewEntries = 16

// Look reads the entries with some keys, including the leaves of other writers. It returns
// nil for a key without an entry.
func (s *Session) Look(ctx context.Context, l *codec.List, keys []string) (map[string]codec.Entry, error) {
	found := make(map[string]codec.Entry, len(keys))
	if s.Dialect.opaque || len(keys) > FewEntries {
		for _, k := range keys {
			found[k] = nil
		}
		_, err := s.ReadList(ctx, l, func(e codec.Entry) {
			if _, wanted := found[e.Key()]; wanted {
				e.Normalize()
				found[e.Key()] = e
			}
		})
		return found, err
	}
	var mu sync.Mutex
	err := Together(ctx, s.Parallel(), len(keys), func(ctx context.Context, i int) error {
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

// StateList is a list in a container of the operational datastore.
type StateList struct{ Module, Container, Name string }

// ReadState reads a list of the operational datastore, or its entry with these keys; there is false if it does not exist.
func ReadState[E any](ctx context.Context, s *Session, l StateList, add func(E), keys ...string) (there bool, err error) {
	url := s.URL + s.Dialect.operational + "/" + l.Module + ":" + l.Container
	if len(keys) > 0 {
		url += "/" + l.Name + s.Dialect.selector(keys...)
	}
	if s.Dialect.state != "" {
		url += "?" + s.Dialect.state
	}
	q := Request{Method: http.MethodGet, URL: url, Media: s.Dialect.media, Timeout: s.client.cfg.Timeout, Small: true}
	if len(keys) == 0 {
		q.Timeout, q.Small = s.client.cfg.ReadTimeout, false
	}
	return ReadStateBy(ctx, s, q, l, len(keys) > 0, add)
}

// ReadStateBy reads the answer to a request for a list, or for a single entry of it; there is false if it does not exist.
func ReadStateBy[E any](ctx context.Context, s *Session, q Request, l StateList, single bool, add func(E)) (there bool, err error) {
	element := func(d *jsontext.Decoder) error {
		var e E
		err := json.UnmarshalDecode(d, &e)
		if err == nil {
			add(e)
		}
		return err
	}
	err = s.Send(ctx, q, func(body io.Reader) error {
		read := decode
		if single {
			read = decodeSingle
		}
		if err := read(body, l, element); err != nil {
			return fmt.Errorf("read %s:%s: %w", l.Module, l.Container, err)
		}
		return nil
	})
	var answer *AnswerError
	if errors.As(err, &answer) && (s.Missing(err) || s.Dialect.opaque && answer.Status == http.StatusInternalServerError) {
		return false, nil
	}
	return err == nil, err
}

func decodeList(body io.Reader, l *codec.List, add func(codec.Entry)) error {
	return decode(body, StateList{l.Module, l.Container, l.Name}, elementOf(l, add))
}

func decodeEntry(body io.Reader, l *codec.List, add func(codec.Entry)) error {
	return decodeSingle(body, StateList{l.Module, l.Container, l.Name}, elementOf(l, add))
}

// elementOf returns a function that reads an entry of a list.
func elementOf(l *codec.List, add func(codec.Entry)) func(*jsontext.Decoder) error {
	return func(d *jsontext.Decoder) error {
		e := l.Fresh()
		err := json.UnmarshalDecode(d, e)
		if err == nil {
			add(e)
		}
		return err
	}
}

// Together calls do for each of n numbers, some at a time, and waits for all calls. After
// the first error it starts no more. It does not cancel running calls: a cancelled write
// could take effect after the next reading.
func Together(ctx context.Context, some, n int, do func(ctx context.Context, i int) error) error {
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
