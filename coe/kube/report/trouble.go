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

// failure is why the API server did not accept a request.
type failure string

const (
	none         failure = "ok"
	gone         failure = "gone"         // the object no longer exists
	rejected     failure = "rejected"     // it cannot accept this request
	forbidden    failure = "forbidden"    // the bridge has no permission
	unauthorized failure = "unauthorized" // the bridge is not authenticated
	unavailable  failure = "unavailable"  // it is unreachable or overloaded
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

// isOfAnother reports whether a patch failed because the object has another UID. The API server
// treats such a patch as an attempt to change the UID.
func isOfAnother(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(status.Status().Details.Causes, func(c metav1.StatusCause) bool {
		return c.Field == "metadata.uid"
	})
}

// backoff returns the delay before a retry after n failures.
func (f failure) backoff(n int) time.Duration {
	if f == unavailable {
		return backoff(n, 100*time.Millisecond, 5*time.Second)
	}
	return backoff(n, time.Second, maxBackoff)
}

// maxBackoff is the maximum delay of a retry.
const maxBackoff = 5 * time.Minute

// repeat is the interval at which a persistent trouble is logged again.
const repeat = 10 * time.Minute

// trouble is a failure that affects all writes of one kind. While it lasts, few writes are
// tried.
type trouble struct {
	what  string // the kind of writes
	allow string // the required verbs and resources
	log   *slog.Logger

	mu     sync.Mutex
	now    failure // empty: none
	err    error
	until  time.Time // time of the next attempt
	rounds int       // failed attempts
	logged map[failure]time.Time
}

func newTrouble(what, allow string, log *slog.Logger) *trouble {
	return &trouble{what: what, allow: allow, log: log, logged: map[failure]time.Time{}}
}

// wait waits until a write may be tried. It fails only if ctx is done.
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

// add records a failed write. Failures of concurrent writes count once.
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
		t.log.Error("the API server does not accept writes", "what", t.what, "reason", string(f), "do", t.advice(f), "err", err)
	}
}

// maxPause returns the maximum delay between attempts.
func maxPause(f failure) time.Duration {
	if f == unavailable {
		return 2 * time.Second
	}
	return 30 * time.Second
}

// over records that the API server has judged a write individually.
func (t *trouble) over() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.now, t.err, t.until, t.rounds = "", nil, time.Time{}, 0
}

// message describes the trouble and the fix; empty for none. The trouble ends when nothing is left
// to retry.
func (t *trouble) message() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.now == "" || time.Since(t.until) > maxBackoff+maxPause(t.now) {
		return ""
	}
	return fmt.Sprintf("%s are not written: %s: %s: %v", t.what, t.now, t.advice(t.now), t.err)
}

func (t *trouble) advice(f failure) string {
	switch f {
	case forbidden:
		return "allow " + t.allow + " to the bridge's account"
	case unauthorized:
		return "replace the bridge's credentials"
	default:
		return "none; the bridge retries"
	}
}
