package uplink

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// The delay after a failed connection: at first or after progress, and at most.
const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 5 * time.Second
)

// maxLine is the maximum length of a line of the stream in bytes.
const maxLine = 1 << 20

// Status is the state of the connection to the bridge.
type Status struct {
	Connected bool // the Uplink follows a bridge
	// Synced is true once the bridge has sent the records since the process started.
	Synced bool
	// Err is the reason if the Uplink follows no bridge.
	Err error
}

// Run follows the node's stream, from one replica after the other, until ctx is done.
func (u *Uplink) Run(ctx context.Context) {
	var keeping sync.WaitGroup
	defer keeping.Wait()
	keeping.Go(func() { u.keep(ctx) })
	wait := firstRetry
	for i := 0; ctx.Err() == nil; i++ {
		url := u.cfg.URLs[i%len(u.cfg.URLs)]
		before := u.ID()
		err := u.follow(ctx, url)
		if ctx.Err() != nil {
			return
		}
		if u.ID() != before {
			wait = firstRetry
		}
		u.lost(url, err)
		pause(ctx, wait/2+rand.N(wait))
		if i%len(u.cfg.URLs) == len(u.cfg.URLs)-1 {
			wait = min(2*wait, lastRetry)
		}
	}
}

// lost records a lost connection, and logs it once. It closes idle connections, so that
// the next connection uses the current certificate.
func (u *Uplink) lost(url string, err error) {
	u.http.CloseIdleConnections()
	u.mu.Lock()
	again := !u.status.Connected && u.status.Err != nil && u.status.Err.Error() == err.Error()
	u.status.Connected, u.status.Err = false, err
	u.notify()
	u.mu.Unlock()
	if !again {
		u.log.Warn("lost the stream from the bridge; pods without a record must wait", "url", url, "err", err)
	}
}

// hear notes that the bridge is there.
func (u *Uplink) hear() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.status.Synced {
		u.heard = time.Now()
	}
}

// Heard returns when the bridge was last heard since it has sent the records; zero if it has not sent them since the
// process started. It is heard every 15 s at least while the stream is alive.
func (u *Uplink) Heard() time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.heard
}

func (u *Uplink) connected(url string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.status.Connected, u.status.Err = true, nil
	u.connections++
	u.followed = slices.Index(u.cfg.URLs, url)
	u.notify()
	u.log.Info("following the bridge", "url", url, "after", u.state.id)
}

// follow follows the stream of one replica until it ends. If the bridge serves OVN first, and the node is with OpenDaylight, it holds
// the stream and takes nothing, until the node's place changes.
func (u *Uplink) follow(ctx context.Context, url string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	answer, err := u.open(ctx, url, u.ID())
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	u.connected(url)
	silence := time.AfterFunc(u.cfg.Silence, func() { cancel(fmt.Errorf("the bridge has sent nothing for %s", u.cfg.Silence)) })
	defer silence.Stop()
	held := false
	err = read(answer.Body, func() {
		silence.Reset(u.cfg.Silence)
		if !held {
			u.hear()
		}
	}, func(id string, group []event) error {
		switch {
		case !held:
			err := u.take(id, group)
			if held = errors.Is(err, ErrServesOVN); !held {
				return err
			}
			u.lost(url, err)
		case slices.ContainsFunc(group, event.ofPlace):
			return ErrServesOVN // the order can be right now: the next connection continues from the last event that was taken
		}
		return nil
	})
	return errors.Join(context.Cause(ctx), err)
}

// open opens the stream at one replica, after an event; empty to get all records.
func (u *Uplink) open(ctx context.Context, url, after string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/rests/streams/node-interfaces="+u.cfg.Node.String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "text/event-stream")
	if after != "" {
		r.Header.Set("Last-Event-ID", after)
	}
	if err := u.authorize(r); err != nil {
		return nil, err
	}
	answer, err := u.http.Do(r)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		defer func() { _ = answer.Body.Close() }()
		return nil, refusal(answer)
	}
	return answer, nil
}

// refusal returns the error for a response with an error status.
func refusal(answer *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(answer.Body, 1<<10))
	return fmt.Errorf("the bridge answered %s: %s", answer.Status, message(text))
}

// message returns the error-message of a RESTCONF error (RFC 8040 section 7.1), or the text
// itself if it is not a RESTCONF error.
func message(text []byte) string {
	var body struct {
		Errors struct {
			List []struct {
				Message string `json:"error-message"`
			} `json:"error"`
		} `json:"ietf-restconf:errors"`
	}
	if err := json.Unmarshal(text, &body); err == nil && len(body.Errors.List) > 0 {
		return body.Errors.List[0].Message
	}
	return strings.TrimSpace(string(text))
}

// event holds the members of a notification by name.
type event map[string]json.RawMessage

// ofPlace reports whether the node's place can differ after an event.
func (e event) ofPlace() bool { return e[nodeEvent] != nil || e[beginEvent] != nil }

// read reads server-sent events until the stream ends, and calls take for each group. The last
// event of a group has an ID. read calls alive for each line.
func read(body io.Reader, alive func(), take func(id string, group []event) error) error {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, maxLine)
	var group []event
	id := ""
	for lines.Scan() {
		alive()
		field, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "id":
			id = value
		case "data":
			e, err := parseEvent(value)
			if err != nil {
				return err
			}
			group = append(group, e)
		case "":
			if id == "" || lines.Text() != "" {
				continue // the group continues, or the line is a comment
			}
			if err := take(id, group); err != nil {
				return err
			}
			id, group = "", nil
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return errors.New("the bridge closed the stream")
}

func parseEvent(data string) (event, error) {
	var body struct {
		Notification event `json:"ietf-restconf:notification"`
	}
	if err := json.Unmarshal([]byte(data), &body); err != nil {
		return nil, fmt.Errorf("read an event: %w", err)
	}
	return body.Notification, nil
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
