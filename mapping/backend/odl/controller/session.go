package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/codec"
)

// Session is a controller that was ready when the session was opened, with its dialect and its form of Netvirt's lists. Its methods may
// be called concurrently.
type Session struct {
	URL     string
	Dialect Dialect
	Form    codec.Form
	Lists   *[codec.ListCount]codec.List
	client  *Client
	modules []string
}

// needed lists the modules that writes need, beside one of the l3vpn modules.
var needed = []string{"elan", "ietf-interfaces", "odl-interface", "odl-l3vpn", "odl-nat", "aclservice", "ietf-access-control-list"}

// Open opens a session with the controller at a URL if it is ready, and detects its dialect.
func (c *Client) Open(ctx context.Context, url string) (*Session, error) {
	var failures []error
	for _, d := range c.candidates() {
		s := &Session{client: c, URL: url, Dialect: d}
		err := s.discover(ctx)
		if err == nil {
			return s, nil
		}
		failures = append(failures, err)
		if s.modules == nil && errors.Is(err, context.DeadlineExceeded) {
			break // a frozen controller answers in no dialect
		}
	}
	return nil, fmt.Errorf("OpenDaylight at %s is not ready: %w", url, errors.Join(failures...))
}

// candidates returns the dialects to try.
func (c *Client) candidates() []Dialect {
	if c.cfg.Dialect != "" {
		return []Dialect{dialectOf(c.cfg.Dialect)}
	}
	return []Dialect{dialectOf(Draft02), dialectOf(rfc8040)}
}

// discover detects the controller's modules, and the form of its lists.
func (s *Session) discover(ctx context.Context) (err error) {
	if s.modules, err = s.ready(ctx); err != nil {
		return err
	}
	if s.Form, err = s.formOf(ctx); err != nil {
		return err
	}
	s.Lists = codec.ListsOf(s.Form)
	marks, err := s.marksDeleted(ctx)
	if marks {
		s.Lists[codec.AccessLists].Fresh = codec.NewMarkedList
	}
	return err
}

// formOf detects the form. Moved and flat have the same module name and revision, so it
// requests an address family, which only moved has.
func (s *Session) formOf(ctx context.Context) (codec.Form, error) {
	if !s.Serves(codec.ModuleMoved) {
		return codec.Nested, nil
	}
	l := &codec.ListsOf(codec.Moved)[codec.VPNInstances]
	err := s.Send(ctx, s.Request(http.MethodGet, s.Dialect.entry(l, "coe-bridge:probe")+"/ipv4-family", nil), nil)
	var answer *AnswerError
	switch {
	case err != nil && !errors.As(err, &answer):
		return codec.Nested, err
	case err == nil || s.Missing(err):
		return codec.Moved, nil
	}
	return codec.Flat, nil
}

// marksDeleted reports whether rules have the leaf deleted. Draft-02 refuses a request for a leaf, and
// says why.
func (s *Session) marksDeleted(ctx context.Context) (bool, error) {
	rule := "/ace/probe"
	if s.Dialect.equal {
		rule = "/ace=probe"
	}
	path := s.Dialect.entry(&s.Lists[codec.AccessLists], "coe-bridge:probe") + "/access-list-entries" + rule + "/aclservice:deleted"
	err := s.Send(ctx, s.Request(http.MethodGet, path, nil), nil)
	var answer *AnswerError
	switch {
	case err == nil:
		return true, nil
	case !errors.As(err, &answer):
		return false, err
	}
	return s.Missing(err) || strings.Contains(answer.message, "must be Container or List"), nil
}

// Serves reports whether the controller served a module when the session was opened.
func (s *Session) Serves(module string) bool { return slices.Contains(s.modules, module) }

// Ready returns an error if the controller does not serve a needed module: a controller that starts answers requests before it has loaded
// its models, and those answers say nothing about the data.
func (s *Session) Ready(ctx context.Context) error {
	_, err := s.ready(ctx)
	return err
}

// HasBetter reports whether a controller with another dialect also has draft-02, which a
// starting controller may offer later.
func (s *Session) HasBetter(ctx context.Context) bool {
	if s.client.cfg.Dialect != "" || s.Dialect.Name == Draft02 {
		return false
	}
	better := &Session{client: s.client, URL: s.URL, Dialect: dialectOf(Draft02)}
	return better.Ready(ctx) == nil
}

// ready returns the modules that the controller serves, unless a needed one is missing.
func (s *Session) ready(ctx context.Context) ([]string, error) {
	modules, err := s.served(ctx)
	if err != nil {
		return nil, err
	}
	var missing []string
	for _, name := range needed {
		if !slices.Contains(modules, name) {
			missing = append(missing, name)
		}
	}
	if !slices.Contains(modules, codec.ModuleL3VPN) && !slices.Contains(modules, codec.ModuleMoved) {
		missing = append(missing, codec.ModuleL3VPN)
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("it does not serve %s: it is starting, or has no Netvirt", strings.Join(missing, ", "))
	}
	return modules, nil
}

const libraryOfDraft, libraryOfRFC = "/restconf/modules", "ietf-yang-library:modules-state"

// served returns the names of the modules that the controller serves.
func (s *Session) served(ctx context.Context) ([]string, error) {
	if s.Dialect.Name == Draft02 {
		names, _, err := s.library(ctx, libraryOfDraft, "application/yang.api+json, "+jsonOfDraft)
		return names, err
	}
	names, prefixed, err := s.library(ctx, s.Dialect.data+"/"+libraryOfRFC, JSONOfRFC)
	if err == nil && s.client.cfg.Dialect == "" && s.Lists == nil {
		err = s.detect(ctx, prefixed)
	}
	return names, err
}

// detect detects the variant of RFC 8040. Oxygen's writes no prefix at the top level. Neon's
// answers a request for data that does not exist with an HTML page.
func (s *Session) detect(ctx context.Context, prefixed bool) error {
	if !prefixed {
		s.Dialect = dialectOf(oxygen8040)
		return nil
	}
	absent := s.Dialect.entry(&codec.ListsOf(codec.Nested)[codec.ELANInstances], "coe-bridge:probe")
	err := s.Send(ctx, s.Request(http.MethodGet, absent, nil), nil)
	var answer *AnswerError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &answer):
		return err
	case answer.tag == "":
		s.Dialect = dialectOf(neon8040)
	}
	return nil
}

// library reads a list of modules; prefixed reports whether the name at the top level has a
// prefix.
func (s *Session) library(ctx context.Context, path, media string) (names []string, prefixed bool, err error) {
	q := Request{Method: http.MethodGet, URL: s.URL + path, Media: media, Timeout: s.client.cfg.Timeout, Small: true}
	err = s.Send(ctx, q, func(body io.Reader) error {
		var answer map[string]struct {
			Module []struct {
				Name string `json:"name"`
			} `json:"module"`
		}
		if err := json.NewDecoder(body).Decode(&answer); err != nil {
			return fmt.Errorf("read the modules that it serves: %w", err)
		}
		for top, list := range answer {
			prefixed = strings.Contains(top, ":")
			for _, m := range list.Module {
				names = append(names, m.Name)
			}
		}
		return nil
	})
	return names, prefixed, err
}

// Send is Send of the session's Client.
func (s *Session) Send(ctx context.Context, q Request, read func(io.Reader) error) error {
	return s.client.Send(ctx, q, read)
}

// Request returns a request to the config datastore.
func (s *Session) Request(method, path string, body []byte) Request {
	url := s.URL + path
	if method == http.MethodGet && s.Dialect.query != "" {
		url += "?" + s.Dialect.query
	}
	return Request{Method: method, URL: url, Media: s.Dialect.media, Body: body, Timeout: s.client.cfg.Timeout}
}

// Operation returns a request that calls an RPC, MODULE:NAME, of a member of the controller's cluster.
func (s *Session) Operation(url, rpc string, input any) (Request, error) {
	module, _, _ := strings.Cut(rpc, ":")
	body, err := json.Marshal(map[string]any{module + ":input": input})
	if err != nil {
		return Request{}, fmt.Errorf("call %s: %w", rpc, err)
	}
	return Request{Method: http.MethodPost, URL: url + s.Dialect.operations + "/" + rpc, Media: s.Dialect.media, Body: body, Timeout: s.client.cfg.Timeout}, nil
}

// Missing reports whether an error is an answer that means that the data does not exist.
func (s *Session) Missing(err error) bool {
	var answer *AnswerError
	return errors.As(err, &answer) && s.Dialect.missing(answer)
}

// Parallel returns the maximum number of concurrent requests.
func (s *Session) Parallel() int {
	if s.Dialect.together {
		return s.client.cfg.Parallel
	}
	return 1
}

// entriesPerTimeout is the number of entries for which a request has one Timeout.
const entriesPerTimeout = 200

// Post creates entries of a list in one request.
func (s *Session) Post(ctx context.Context, l *codec.List, entries ...codec.Entry) error {
	body, err := l.Body(entries...)
	if err != nil {
		return err
	}
	q := s.Request(http.MethodPost, s.Dialect.container(l), body)
	q.Timeout *= time.Duration(1 + (len(entries)-1)/entriesPerTimeout)
	return s.Send(ctx, q, nil)
}

// Get reads an entry of a list.
func (s *Session) Get(ctx context.Context, l *codec.List, key string, read func(io.Reader) error) error {
	return s.Send(ctx, s.Request(http.MethodGet, s.Dialect.entry(l, key), nil), read)
}

// Put creates or replaces an entry of a list.
func (s *Session) Put(ctx context.Context, l *codec.List, e codec.Entry) error {
	body, err := l.Body(e)
	if err != nil {
		return err
	}
	return s.Send(ctx, s.Request(http.MethodPut, s.Dialect.entry(l, e.Key()), body), nil)
}

// Delete deletes an entry of a list.
func (s *Session) Delete(ctx context.Context, l *codec.List, key string) error {
	return s.Send(ctx, s.Request(http.MethodDelete, s.Dialect.entry(l, key), nil), nil)
}
