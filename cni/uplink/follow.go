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
	"strings"
	"sync"
	"time"
)

// How long is waited after a replica has failed: at first, at most, and when one has
// told something before.
const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 5 * time.Second
)

// maxLine bounds a line of the stream.
const maxLine = 1 << 20

// Standing is how the connection to the bridge is.
type Standing struct {
	Connected bool
	// Synced: the records are what the bridge has said since the process began.
	Synced bool
	// Err is why there is no connection.
	Err error
}

// Run follows the stream of the node, at one replica after the other, until ctx is
// done.
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

// lost notes that there is no connection, and logs it once. The next one is made anew,
// with the certificate as it is then.
func (u *Uplink) lost(url string, err error) {
	u.http.CloseIdleConnections()
	u.mu.Lock()
	again := !u.is.Connected && u.is.Err != nil && u.is.Err.Error() == err.Error()
	u.is.Connected, u.is.Err = false, err
	u.wake()
	u.mu.Unlock()
	if !again {
		u.log.Warn("no stream from the bridge: known pods go on, others wait", "url", url, "err", err)
	}
}

func (u *Uplink) connected(url string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.is.Connected, u.is.Err = true, nil
	u.wake()
	u.log.Info("following the bridge", "url", url, "after", u.state.id)
}

// follow follows the stream at one replica until that ends.
func (u *Uplink) follow(ctx context.Context, url string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	answer, err := u.open(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	u.connected(url)
	silence := time.AfterFunc(u.cfg.Silence, func() { cancel(fmt.Errorf("the bridge has said nothing for %s", u.cfg.Silence)) })
	defer silence.Stop()
	err = u.read(answer.Body, func() { silence.Reset(u.cfg.Silence) })
	return errors.Join(context.Cause(ctx), err)
}

// open opens the stream at one replica, after what is known.
func (u *Uplink) open(ctx context.Context, url string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/rests/streams/node-interfaces="+u.cfg.Node.String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "text/event-stream")
	if id := u.ID(); id != "" {
		r.Header.Set("Last-Event-ID", id)
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

// refusal is what a bridge says that does not do what it is asked.
func refusal(answer *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(answer.Body, 1<<10))
	return fmt.Errorf("the bridge answers %s: %s", answer.Status, strings.TrimSpace(string(text)))
}

// event is the members of a notification.
type event map[string]json.RawMessage

// read takes the events of a stream of server-sent events, group by group, until it
// ends; the last event of a group is the one with an ID.
func (u *Uplink) read(body io.Reader, alive func()) error {
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
				continue // more of the group is to come, or a comment
			}
			if err := u.take(id, group); err != nil {
				return err
			}
			id, group = "", nil
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return errors.New("the bridge has ended the stream")
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
