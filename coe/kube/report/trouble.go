package report

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// failure is why the API server did not take something.
type failure string

const (
	none         failure = "ok"
	gone         failure = "gone"         // what it is about is not there any more
	rejected     failure = "rejected"     // it will never take this
	forbidden    failure = "forbidden"    // the bridge may not do it
	unauthorized failure = "unauthorized" // it does not know the bridge
	unavailable  failure = "unavailable"  // it can't be reached, or has too much to do
)

func failureOf(err error) failure {
	if err == nil {
		return none
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return unavailable
	}
	switch code := status.Status().Code; {
	case code == http.StatusNotFound, isOfAnother(err), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return gone
	case code == http.StatusForbidden:
		return forbidden
	case code == http.StatusUnauthorized:
		return unauthorized
	case code == http.StatusConflict, code == http.StatusTooManyRequests, code == http.StatusRequestTimeout, code < 400, code >= 500:
		return unavailable
	default:
		return rejected
	}
}

// isOfAnother tells whether a patch was refused because the object of that name
// has another uid than the patch says, which the API server takes as an attempt
// to change it.
func isOfAnother(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(status.Status().Details.Causes, func(c metav1.StatusCause) bool {
		return c.Field == "metadata.uid"
	})
}

// backoff is when one that has failed n times before for the reason is tried again.
func (f failure) backoff(n int) time.Duration {
	if f == unavailable {
		return backoff(n, 100*time.Millisecond, 5*time.Second)
	}
	return backoff(n, time.Second, maxBackoff)
}

// maxBackoff is when one that has failed is tried again at the latest.
const maxBackoff = 5 * time.Minute

// repeat is when a trouble that goes on, or comes back, is logged again.
const repeat = 10 * time.Minute

// trouble is what the API server has against all writes of one sort. While there
// is some, few are tried: the writers wait for their turn.
type trouble struct {
	what  string // is written
	allow string // verbs and resources that it takes
	log   *slog.Logger

	mu     sync.Mutex
	now    failure // empty: none
	err    error
	until  time.Time // when writing may be tried again
	rounds int       // how often it was tried in vain
	logged map[failure]time.Time
}

func newTrouble(what, allow string, log *slog.Logger) *trouble {
	return &trouble{what: what, allow: allow, log: log, logged: map[failure]time.Time{}}
}

// wait returns when a write may be tried; an error only when ctx is done.
func (t *trouble) wait(ctx context.Context) error {
	for {
		t.mu.Lock()
		pause := time.Until(t.until)
		t.mu.Unlock()
		if pause <= 0 {
			return ctx.Err()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// add notes that a write has failed. Those that were under way at the same time
// and fail with it count as one.
func (t *trouble) add(f failure, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	t.now, t.err = f, err
	if now.Before(t.until) {
		return
	}
	pause := backoff(t.rounds, 100*time.Millisecond, maxPause(f))
	if seconds, told := apierrors.SuggestsClientDelay(err); told {
		pause = max(pause, min(time.Duration(seconds)*time.Second, maxPause(forbidden)))
	}
	t.until = now.Add(pause)
	t.rounds++
	if last, found := t.logged[f]; !found || now.Sub(last) > repeat {
		t.logged[f] = now
		t.log.Error("the API server does not take what is reported", "what", t.what, "reason", string(f), "do", t.advice(f), "err", err)
	}
}

// maxPause is how long nothing is tried at most.
func maxPause(f failure) time.Duration {
	if f == unavailable {
		return 2 * time.Second
	}
	return 30 * time.Second
}

// over notes that the API server has judged a write by itself.
func (t *trouble) over() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.now, t.err, t.until, t.rounds = "", nil, time.Time{}, 0
}

// message says what the trouble is and what to do; empty for none. One is none any
// more when nothing is left that would be tried again.
func (t *trouble) message() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.now == "" || time.Since(t.until) > maxBackoff+maxPause(t.now) {
		return ""
	}
	return fmt.Sprintf("%s are not written, the API server is %s to the bridge: %s: %v", t.what, t.now, t.advice(t.now), t.err)
}

func (t *trouble) advice(f failure) string {
	switch f {
	case forbidden:
		return "allow " + t.allow + " to the bridge's account"
	case unauthorized:
		return "replace the bridge's credentials"
	default:
		return "none: it is tried again"
	}
}
