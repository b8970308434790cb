package odl

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/go-resty/resty/v2"
)

// unauthorizedPause is the time for which refused credentials are not sent again, unless
// they change. A controller may load its accounts late, and it may count failed logins.
const unauthorizedPause = 5 * time.Second

// client sends requests, each once. It keeps connections open, and stores no cookies.
type client struct {
	rest        *resty.Client
	transport   *http.Transport
	credentials credentials
	timeout     time.Duration
	answerBytes int64
	mayWrite    func(context.Context) error
	log         *slog.Logger

	mu      sync.Mutex
	refused login // the last credentials that were refused
	until   time.Time
	toWrite bool // they were refused for a write
}

func newClient(cfg *Config, log *slog.Logger) (*client, error) {
	dialer := &net.Dialer{Timeout: cfg.ConnectTimeout}
	transport := &http.Transport{
		DialContext: dialer.DialContext, TLSHandshakeTimeout: cfg.ConnectTimeout,
		MaxIdleConnsPerHost: cfg.Parallel + 1, MaxConnsPerHost: cfg.Parallel + 2, IdleConnTimeout: time.Minute,
	}
	if cfg.TLS != nil {
		transport.DialTLSContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			return (&tls.Dialer{NetDialer: dialer, Config: cfg.TLS()}).DialContext(ctx, network, address)
		}
	}
	c := &client{
		rest: resty.NewWithClient(&http.Client{Transport: transport}), transport: transport,
		credentials: credentials{path: cfg.AuthFile}, timeout: cfg.Timeout, answerBytes: cfg.AnswerBytes,
		mayWrite: cfg.MayWrite, log: log,
	}
	c.rest.SetDisableWarn(true).SetRedirectPolicy(resty.NoRedirectPolicy())
	_, err := c.credentials.get() // reports an invalid file at once
	return c, err
}

func (c *client) closeIdle() { c.transport.CloseIdleConnections() }

// request is a request to a controller.
type request struct {
	method, url string
	media       string // of the answer and of the body
	body        []byte // nil if there is none
	timeout     time.Duration
	small       bool // the answer is not a whole list
}

// smallAnswer is the maximum size of an answer that is not a whole list, in bytes.
const smallAnswer = 8 << 20

// send makes a request and reads the answer, before the request's timeout. read may be nil,
// if the answer's content is not needed. An answer that is not a success is an *answerError.
func (c *client) send(ctx context.Context, q request, read func(io.Reader) error) error {
	who, err := c.login()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, q.timeout)
	defer cancel()
	if q.method != http.MethodGet && c.mayWrite != nil {
		if err := c.mayWrite(ctx); err != nil {
			return fmt.Errorf("%s %s was not sent: %w", q.method, q.url, err)
		}
	}
	r := c.rest.R().SetContext(ctx).SetDoNotParseResponse(true).SetHeader("Accept", q.media)
	if who.user != "" {
		r.SetBasicAuth(who.user, who.password)
	}
	if q.body != nil {
		r.SetHeader("Content-Type", q.media).SetBody(q.body)
	}
	response, err := r.Execute(q.method, q.url)
	if err != nil {
		return describeFailure(ctx, q, err)
	}
	raw := response.RawResponse
	defer func() { _ = raw.Body.Close() }()
	if raw.StatusCode/100 != 2 {
		err := readError(q.method, raw.Request.URL.Path, raw)
		c.recordLogin(who, q.method != http.MethodGet, err)
		return err
	}
	c.recordLogin(who, q.method != http.MethodGet, nil)
	limit := c.answerBytes
	if q.small || read == nil {
		limit = min(limit, smallAnswer)
	}
	return readAnswer(ctx, q, raw, read, limit)
}

func readAnswer(ctx context.Context, q request, raw *http.Response, read func(io.Reader) error, limit int64) error {
	silent := read == nil && raw.Header.Get("Content-Type") == "" // as OpenDaylight answers a write
	if err := checkJSON(q.method, raw.Request.URL.Path, raw); err != nil && !silent {
		return err
	}
	if read == nil {
		read = readNothing
	}
	return describeFailure(ctx, q, read(&bounded{raw.Body, limit}))
}

// readNothing skips an answer, so that the connection can be used again. The answer must be
// empty or one JSON value.
func readNothing(body io.Reader) error {
	d := newDecoder(body)
	if d.PeekKind() == jsontext.KindInvalid {
		_, err := d.ReadToken()
		if errors.Is(err, io.EOF) {
			return nil
		}
		return err
	}
	if err := d.SkipValue(); err != nil {
		return err
	}
	return ended(d)
}

// describeFailure adds the request to an error, and the timeout or the cut answer as cause.
func describeFailure(ctx context.Context, q request, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil:
		err = fmt.Errorf("%w: no complete answer within %s", context.Cause(ctx), q.timeout)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		err = fmt.Errorf("the answer was cut off: %w", err)
	}
	return fmt.Errorf("%s %s: %w", q.method, q.url, err)
}

// login returns the current credentials. It fails if the controller has just refused them.
func (c *client) login() (login, error) {
	who, err := c.credentials.get()
	if err != nil {
		return who, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if who == c.refused && time.Now().Before(c.until) {
		return who, errUnauthorized
	}
	return who, nil
}

// recordLogin records whether the controller accepts the credentials. It logs a refusal once. Credentials that it refuses for a write
// can be good for reads, so only an accepted write ends that.
func (c *client) recordLogin(who login, writes bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !errors.Is(err, errUnauthorized) {
		if writes || !c.toWrite {
			c.refused, c.until, c.toWrite = login{}, time.Time{}, false
		}
		return
	}
	if c.until.IsZero() || c.refused != who {
		c.log.Error("OpenDaylight refuses the bridge; nothing is read or written until it accepts the credentials", "user", who.user, "err", err)
	}
	c.refused, c.until, c.toWrite = who, time.Now().Add(unauthorizedPause), writes
}
