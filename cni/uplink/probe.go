package uplink

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// Reached is the answer of a replica that is ready.
type Reached struct {
	Time    time.Time
	Warning string // what keeps new pods from getting an interface; empty if nothing does
}

// Reach checks that a replica is ready, without credentials.
func (u *Uplink) Reach(ctx context.Context, url string) (reached Reached, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/readyz", http.NoBody)
	if err != nil {
		return reached, err
	}
	answer, err := u.http.Do(r)
	if err != nil {
		return reached, err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return reached, refusal(answer)
	}
	if reached.Time, err = http.ParseTime(answer.Header.Get("Date")); err != nil {
		return reached, fmt.Errorf("parse the Date header of the bridge: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(answer.Body, 1<<10))
	if err != nil {
		return reached, fmt.Errorf("read the answer of the bridge: %w", err)
	}
	_, warning, _ := strings.Cut(string(text), "warning: ")
	reached.Warning = strings.TrimSpace(warning)
	return reached, nil
}

// CheckOrder returns ErrServesOVN if the node cannot follow a replica because of the order of the bridge's backends. It waits for
// what the replica sends first.
func (u *Uplink) CheckOrder(ctx context.Context, url string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answer, err := u.open(ctx, url, "")
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	seen := errors.New("the first events were read")
	err = read(answer.Body, func() {}, func(_ string, group []event) error {
		var s state
		for _, e := range group {
			if e[nodeEvent] == nil {
				continue
			}
			if err := s.applyNode(e[nodeEvent]); err != nil {
				return err
			}
		}
		return cmp.Or(u.cfg.check(s.place), seen)
	})
	if errors.Is(err, seen) {
		return nil
	}
	return err
}

// Login opens the node's stream at a replica to check the credentials, and closes it.
func (u *Uplink) Login(ctx context.Context, url string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answer, err := u.open(ctx, url, u.ID())
	if err != nil {
		return err
	}
	return answer.Body.Close()
}
