// Package controller is the connection to an OpenDaylight with Netvirt, over RESTCONF.
//
// A Client sends requests, and knows the credentials and what errors mean. A Session is a controller that is ready, with the dialect and
// the form of Netvirt's l3vpn module that it was found to have. It reads and writes entries of Netvirt's lists, and reads lists of the
// operational datastore.
//
// The package knows the names of lists and modules, and nothing of the model. It retries nothing.
package controller

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

// Config configures a Client.
type Config struct {
	// AuthFile is a file with one line "user:password". It is read again when it changes. Empty: requests have no credentials.
	AuthFile string
	// TLS returns the configuration of a new connection, for https URLs. Nil: the system's CAs are trusted.
	TLS func() *tls.Config
	// Dialect is one of Dialects. Empty: Open detects it.
	Dialect string
	// Timeout bounds each request that writes or reads a single entry. A request that creates many entries has this time once more for
	// each further 200.
	Timeout time.Duration
	// ReadTimeout bounds the reading of one whole list.
	ReadTimeout time.Duration
	// ConnectTimeout bounds each attempt to connect.
	ConnectTimeout time.Duration
	// Parallel is how many requests there are at once; two more have connections.
	Parallel int
	// AnswerBytes is the maximum size of an answer.
	AnswerBytes int64
	// MayWrite is called before each write; an error prevents it. Nil: writes are allowed.
	MayWrite func(context.Context) error
}

// Client sends requests, each once. It keeps connections open, and stores no cookies. Its methods may be called concurrently.
type Client struct {
	cfg         Config
	rest        *resty.Client
	transport   *http.Transport
	credentials credentials
	log         *slog.Logger

	mu      sync.Mutex
	refused login // the last credentials that were refused
	until   time.Time
	toWrite bool // they were refused for a write
}

// New returns a Client. An error reports invalid credentials.
func New(cfg Config, log *slog.Logger) (*Client, error) {
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
	c := &Client{
		cfg: cfg, rest: resty.NewWithClient(&http.Client{Transport: transport}), transport: transport,
		credentials: credentials{path: cfg.AuthFile}, log: log,
	}
	c.rest.SetDisableWarn(true).SetRedirectPolicy(resty.NoRedirectPolicy())
	_, err := c.credentials.get() // reports an invalid file at once
	return c, err
}

// CloseIdle closes the connections that no request uses.
func (c *Client) CloseIdle() { c.transport.CloseIdleConnections() }

// Request is a request to a controller.
type Request struct {
	Method, URL string
	Media       string // of the answer and of the body
	Body        []byte // nil if there is none
	Timeout     time.Duration
	Small       bool // the answer is not a whole list
	// Apart is set if a refusal of the user says nothing of other requests.
	Apart bool
}

// smallAnswer is the maximum size of an answer that is not a whole list, in bytes.
const smallAnswer = 8 << 20

// Send makes a request and reads the answer, before the request's timeout. read may be nil,
// if the answer's content is not needed. An answer that is not a success is an *AnswerError.
func (c *Client) Send(ctx context.Context, q Request, read func(io.Reader) error) error {
	who, err := c.login()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, q.Timeout)
	defer cancel()
	if q.Method != http.MethodGet && c.cfg.MayWrite != nil {
		if err := c.cfg.MayWrite(ctx); err != nil {
			return fmt.Errorf("%s %s was not sent: %w", q.Method, q.URL, err)
		}
	}
	r := c.rest.R().SetContext(ctx).SetDoNotParseResponse(true).SetHeader("Accept", q.Media)
	if who.user != "" {
		r.SetBasicAuth(who.user, who.password)
	}
	if q.Body != nil {
		r.SetHeader("Content-Type", q.Media).SetBody(q.Body)
	}
	response, err := r.Execute(q.Method, q.URL)
	if err != nil {
		return describeFailure(ctx, q, err)
	}
	raw := response.RawResponse
	defer func() { _ = raw.Body.Close() }()
	if raw.StatusCode/100 != 2 {
		err := readError(q.Method, raw.Request.URL.Path, raw)
		if !q.Apart {
			c.recordLogin(who, q.Method != http.MethodGet, err)
		}
		return err
	}
	if !q.Apart {
		c.recordLogin(who, q.Method != http.MethodGet, nil)
	}
	limit := c.cfg.AnswerBytes
	if q.Small || read == nil {
		limit = min(limit, smallAnswer)
	}
	return readAnswer(ctx, q, raw, read, limit)
}

func readAnswer(ctx context.Context, q Request, raw *http.Response, read func(io.Reader) error, limit int64) error {
	silent := read == nil && raw.Header.Get("Content-Type") == "" // as OpenDaylight answers a write
	if err := checkJSON(q.Method, raw.Request.URL.Path, raw); err != nil && !silent {
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
func describeFailure(ctx context.Context, q Request, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil:
		err = fmt.Errorf("%w: no complete answer within %s", context.Cause(ctx), q.Timeout)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		err = fmt.Errorf("the answer was cut off: %w", err)
	}
	return fmt.Errorf("%s %s: %w", q.Method, q.URL, err)
}

// login returns the current credentials. It fails if the controller has just refused them.
func (c *Client) login() (login, error) {
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
func (c *Client) recordLogin(who login, writes bool, err error) {
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
