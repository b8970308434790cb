package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/coe-bridge/coe-bridge/test/bench/figures"
	"github.com/coe-bridge/coe-bridge/test/lab/synth"
)

const (
	subscribers   = 100
	streamPuts    = 500
	streamEvery   = 20 * time.Millisecond
	streamBound   = 20 * time.Millisecond
	streamPath    = "/rests/streams/changes=pod:coe"
	streamTimeout = 30 * time.Second
)

// measureStream puts 50 pods a second while 100 clients follow the stream of pods. The measured
// time is from the start of a PUT until a client has its event.
func measureStream(ctx context.Context, b *bench) (all []figures.Figure, err error) {
	dir, err := b.Folder("stream")
	if err != nil {
		return nil, err
	}
	r, err := b.start(ctx, dir, memoryBackend())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.stop()) }()
	if err := r.fill(ctx, oneInNamespaces, 1, 1); err != nil {
		return nil, err
	}
	e := newEars()
	streams, err := r.listen(ctx, e)
	if err != nil {
		return nil, err
	}
	defer streams.stop()
	b.Say("putting %d pods, 50 a second, while 100 clients listen", streamPuts)
	tick := time.NewTicker(streamEvery)
	defer tick.Stop()
	for i := 1; i <= streamPuts; i++ {
		e.begin(i)
		if _, err := r.do(ctx, http.MethodPut, oneInNamespaces.PodPath(i), oneInNamespaces.PodsBody(i, i+1)); err != nil {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-tick.C:
		}
	}
	took, err := e.wait(ctx)
	return []figures.Figure{figures.AtMost("PUT of a pod begun, to its event at 100 subscribers, p99", figures.Percentile(took, 99), streamBound)}, err
}

// ears notes the times at which the subscribers get the event of each pod.
type ears struct {
	mu    sync.Mutex
	begun map[string]time.Time // by uid
	took  []time.Duration
	all   chan struct{} // closed when all subscribers have all events
}

func newEars() *ears { return &ears{begun: map[string]time.Time{}, all: make(chan struct{})} }

func (e *ears) begin(i int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.begun[synth.LeaseKey(i).PodUID] = time.Now()
}

// hear reads a line of a stream.
func (e *ears) hear(line []byte) {
	now := time.Now()
	_, after, found := bytes.Cut(line, []byte("pods="))
	if !found {
		return
	}
	uid, _, _ := bytes.Cut(after, []byte(`"`))
	e.mu.Lock()
	defer e.mu.Unlock()
	begun, found := e.begun[string(uid)]
	if !found {
		return
	}
	if e.took = append(e.took, now.Sub(begun)); len(e.took) == subscribers*streamPuts {
		close(e.all)
	}
}

// wait waits until all subscribers have all events. It returns the duration of each, sorted.
func (e *ears) wait(ctx context.Context) ([]time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, streamTimeout)
	defer cancel()
	select {
	case <-e.all:
		slices.Sort(e.took)
		return e.took, nil
	case <-ctx.Done():
		e.mu.Lock()
		defer e.mu.Unlock()
		return nil, fmt.Errorf("wait for events: %d of %d came: %w", len(e.took), subscribers*streamPuts, ctx.Err())
	}
}

// streams are the streams of the subscribers.
type streams struct {
	cancel context.CancelFunc
	all    sync.WaitGroup
}

// listen starts the subscribers of the stream of pods, and returns when each has its first event.
func (r *running) listen(ctx context.Context, e *ears) (*streams, error) {
	ctx, cancel := context.WithCancel(ctx)
	s := &streams{cancel: cancel}
	var first sync.WaitGroup
	failed := make(chan error, subscribers)
	for range subscribers {
		first.Add(1)
		s.all.Go(func() {
			began := sync.OnceFunc(first.Done)
			defer began()
			if err := r.follow(ctx, began, e.hear); err != nil {
				failed <- err
			}
		})
	}
	first.Wait()
	select {
	case err := <-failed:
		s.stop()
		return nil, err
	default:
		return s, nil
	}
}

// follow reads the stream of pods line by line until ctx is done.
func (r *running) follow(ctx context.Context, began func(), hear func([]byte)) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.bridge.URL()+streamPath, nil)
	if err != nil {
		return fmt.Errorf("follow pods: %w", err)
	}
	request.Header.Set("Accept", "text/event-stream")
	request.SetBasicAuth(user, password)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("follow pods: %w", err)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("follow pods: %s", answer.Status)
	}
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		began()
		hear(lines.Bytes())
	}
	return nil // ctx is done, or the awaited event does not come, which is reported
}

func (s *streams) stop() {
	s.cancel()
	s.all.Wait()
}
