package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/go-resty/resty/v2"
)

// silence is after how long a stream on which nothing comes is given up. A bridge sends a
// comment every 15 s.
const silence = 45 * time.Second

// maxEvent bounds an event in bytes: a bridge takes no larger body, unless it is told to.
const maxEvent = 64 << 20

// maxAnswer bounds what is read of an answer that is no stream.
const maxAnswer = 1 << 20

// lastingError is of a stream that won't come, however often it is asked for.
type lastingError struct{ error }

// Unwrap is why it won't.
func (e lastingError) Unwrap() error { return e.error }

// streaming is a client without a bound on how long an answer may last.
func (f clientFlags) streaming() (*client, error) {
	f.timeout = 0
	return f.client()
}

// follow follows a stream of server-sent events after the one with that ID, and hands
// them on, until it breaks or ctx ends; it returns why. A lastingError is one that
// would come again.
func (c *client) follow(ctx context.Context, stream, after string, heard func(id string, data []byte) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	dead := time.AfterFunc(silence, func() { cancel(fmt.Errorf("nothing was heard for %s", silence)) })
	defer dead.Stop()
	r := c.http.R().SetContext(ctx).SetDoNotParseResponse(true).SetHeader("Accept", "text/event-stream")
	if after != "" {
		r.SetHeader("Last-Event-ID", after)
	}
	answer, err := c.do(r, http.MethodGet, "/rests/streams/"+stream)
	if err != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	defer func() { _ = answer.RawBody().Close() }()
	if answer.StatusCode() != http.StatusOK {
		return c.noStream(answer)
	}
	err = readEvents(answer.RawBody(), func() { dead.Reset(silence) }, heard)
	if why := context.Cause(ctx); why != nil {
		err = why
	}
	return fmt.Errorf("follow %s: %w", c.url, err)
}

// noStream says why there is no stream.
func (c *client) noStream(answer *resty.Response) error {
	body, err := io.ReadAll(io.LimitReader(answer.RawBody(), maxAnswer))
	if err != nil {
		return fmt.Errorf("follow %s: %w", c.url, err)
	}
	err = c.refused(answer.SetBody(body))
	switch code := answer.StatusCode(); {
	case code == http.StatusTooManyRequests, code >= http.StatusInternalServerError:
		return err
	}
	return lastingError{err}
}

// readEvents reads server-sent events, and says with each line that something came.
func readEvents(in io.Reader, alive func(), heard func(id string, data []byte) error) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxEvent)
	var (
		id   string
		data []byte
	)
	for lines.Scan() {
		alive()
		field, value, _ := bytes.Cut(lines.Bytes(), []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch {
		case len(lines.Bytes()) == 0:
			if id != "" || data != nil {
				if err := heard(id, data); err != nil {
					return err
				}
			}
			id, data = "", nil
		case string(field) == "id":
			id = string(value)
		case string(field) == "data":
			if data != nil {
				data = append(data, '\n')
			}
			data = append(data, value...)
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return errors.New("the bridge has ended the stream")
}
