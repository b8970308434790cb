package uplink

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// Reach checks that a replica is ready, without credentials, and returns the time in its
// answer.
func (u *Uplink) Reach(ctx context.Context, url string) (time.Time, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/readyz", http.NoBody)
	if err != nil {
		return time.Time{}, err
	}
	answer, err := u.http.Do(r)
	if err != nil {
		return time.Time{}, err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return time.Time{}, refusal(answer)
	}
	there, err := http.ParseTime(answer.Header.Get("Date"))
	if err != nil {
		return time.Time{}, fmt.Errorf("parse the Date header of the bridge: %w", err)
	}
	return there, nil
}

// Login opens the node's stream at a replica to check the credentials, and closes it.
func (u *Uplink) Login(ctx context.Context, url string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answer, err := u.open(ctx, url)
	if err != nil {
		return err
	}
	return answer.Body.Close()
}
