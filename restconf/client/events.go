package client

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

	"github.com/coe-bridge/coe-bridge/restconf/stream"
)

// silence is the longest time without a line before a stream is given up. A bridge sends a
// comment every 15 s.
const silence = 45 * time.Second

// maxEvent bounds an event in bytes. It is larger than the default limit of a body.
const maxEvent = 64 << 20

// maxAnswer bounds an answer that is not a stream, in bytes.
const maxAnswer = 1 << 20

// LastingError is the error of a stream that another request would not get either.
type LastingError struct{ Err error }

// Error implements error.
func (e LastingError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e LastingError) Unwrap() error { return e.Err }

// Follow follows a stream of server-sent events after the one with that ID, and hands
// them on, until it breaks or ctx ends; it returns why. A lastingError is one that
// would come again.
func (c *Client) Follow(ctx context.Context, name, after string, heard func(id string, data []byte) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	dead := time.AfterFunc(silence, func() { cancel(fmt.Errorf("no data for %s", silence)) })
	defer dead.Stop()
	r := c.http.R().SetContext(ctx).SetDoNotParseResponse(true).SetHeader("Accept", stream.Media)
	if after != "" {
		r.SetHeader("Last-Event-ID", after)
	}
	answer, err := c.do(r, http.MethodGet, stream.Prefix+name)
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
	return fmt.Errorf("follow %s: %w", c.URL, err)
}

// noStream is the error of an answer that is not a stream.
func (c *Client) noStream(answer *resty.Response) error {
	body, err := io.ReadAll(io.LimitReader(answer.RawBody(), maxAnswer))
	if err != nil {
		return fmt.Errorf("follow %s: %w", c.URL, err)
	}
	err = c.refused(answer.SetBody(body))
	switch code := answer.StatusCode(); {
	case code == http.StatusTooManyRequests, code >= http.StatusInternalServerError:
		return err
	}
	return LastingError{err}
}

// readEvents reads server-sent events. It calls alive for each line.
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
