package odl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/codec"
	"github.com/coe-bridge/coe-bridge/mapping/backend/odl/controller"
	"github.com/coe-bridge/coe-bridge/mapping/netvirt"
)

// session is a controller that is ready, with its dialect and form.
type session struct {
	*controller.Client
	cfg     *Config
	base    string // its URL
	dialect controller.Dialect
	lists   *[codec.ListCount]codec.List
	form    codec.Form
}

// needed lists the modules that writes need, beside one of the l3vpn modules.
var needed = []string{"elan", "ietf-interfaces", "odl-interface", "odl-l3vpn", "odl-nat", "aclservice", "ietf-access-control-list"}

// A controller with both modules has Netvirt's own COE renderer and its northbound.
const rendererModule, northboundModule = "pod-meta", "pod"

// connected returns the session, or a new one with the first controller that is ready. The
// caller holds the lock.
func (b *Backend) connected(ctx context.Context) (*session, error) {
	if b.session != nil {
		return b.session, nil
	}
	b.mirror = nil
	var failures []error
	for range b.urls {
		base := b.urls[b.next]
		s, modules, err := b.discover(ctx, base)
		if err == nil {
			b.setSession(s)
			b.logConnected(s)
			b.warn(modules)
			return s, nil
		}
		b.logged = ""
		failures = append(failures, err)
		b.next = (b.next + 1) % len(b.urls)
		if ctx.Err() != nil {
			break
		}
	}
	return nil, errors.Join(failures...)
}

// logConnected logs the controller if it is another one than before, or if none was ready.
func (b *Backend) logConnected(s *session) {
	if now := s.base + " " + s.dialect.Name; now != b.logged {
		b.logged = now
		b.log.Info("connected to OpenDaylight", "url", s.base, "dialect", s.dialect.Name, "l3vpn", s.lists[codec.VPNInstances].Module)
	}
}

// warn logs once that the controller has a program for the same task.
func (b *Backend) warn(modules []string) {
	if !b.warned && slices.Contains(modules, rendererModule) && slices.Contains(modules, northboundModule) {
		b.warned = true
		b.log.Warn("this OpenDaylight has a COE renderer of its own; do not let a COE watcher write pods to it, because both would write entries for the same pods",
			"module", rendererModule)
	}
}

// setSession sets the session. The caller holds the lock.
func (b *Backend) setSession(s *session) {
	b.session = s
	b.observed.Store(s)
}

// mayLeave reports whether an error of a session can be one of this controller alone. With several, another one is tried even if
// the controller answers each request: a member that is separated from its cluster answers 500, or has no data.
func (b *Backend) mayLeave(err error) bool {
	return !errors.Is(err, netvirt.ErrRejected) && (len(b.urls) > 1 || !controller.IsRefusal(err))
}

// discard drops the session; the next one is tried at the next URL. The caller holds the
// lock.
func (b *Backend) discard() {
	if b.session != nil {
		b.setSession(nil)
		b.next = (b.next + 1) % len(b.urls)
	}
	b.mirror = nil
}

// discover opens a session with a controller if it is ready, and detects its dialect.
func (b *Backend) discover(ctx context.Context, base string) (*session, []string, error) {
	var failures []error
	for _, d := range b.candidates() {
		s := &session{Client: b.client, cfg: &b.cfg, base: base, dialect: d}
		modules, err := s.ready(ctx)
		if err != nil {
			failures = append(failures, err)
			if errors.Is(err, context.DeadlineExceeded) {
				break // a frozen controller answers in no dialect
			}
			continue
		}
		if s.form, err = s.formOf(ctx, modules); err != nil {
			failures = append(failures, err)
			continue
		}
		s.lists = codec.ListsOf(s.form)
		marks, err := s.marksDeleted(ctx)
		if err != nil {
			failures = append(failures, err)
			continue
		}
		if marks {
			s.lists[codec.AccessLists].Fresh = codec.NewMarkedList
		}
		return s, modules, nil
	}
	return nil, nil, fmt.Errorf("OpenDaylight at %s is not ready: %w", base, errors.Join(failures...))
}

// formOf detects the form. Moved and flat have the same module name and revision, so it
// requests an address family, which only moved has.
func (s *session) formOf(ctx context.Context, modules []string) (codec.Form, error) {
	if !slices.Contains(modules, codec.ModuleMoved) {
		return codec.Nested, nil
	}
	l := &codec.ListsOf(codec.Moved)[codec.VPNInstances]
	err := s.Send(ctx, s.request(http.MethodGet, s.dialect.Entry(l, "coe-bridge:probe")+"/ipv4-family", nil), nil)
	var answer *controller.AnswerError
	switch {
	case err != nil && !errors.As(err, &answer):
		return codec.Nested, err
	case err == nil || s.dialect.Missing(answer):
		return codec.Moved, nil
	}
	return codec.Flat, nil
}

// candidates returns the dialects to try.
func (b *Backend) candidates() []controller.Dialect {
	if b.cfg.Dialect != "" {
		return []controller.Dialect{controller.DialectOf(b.cfg.Dialect)}
	}
	return []controller.Dialect{controller.DialectOf(controller.Draft02), controller.DialectOf(controller.RFC8040)}
}

// ready returns the modules that the controller serves. It fails if a needed module is
// missing: a controller that starts answers requests before it has loaded its models, and
// those answers say nothing about the data.
func (s *session) ready(ctx context.Context) ([]string, error) {
	modules, err := s.modules(ctx)
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

// modules returns the names of the modules that the controller serves.
func (s *session) modules(ctx context.Context) ([]string, error) {
	if s.dialect.Name == controller.Draft02 {
		names, _, err := s.library(ctx, libraryOfDraft, "application/yang.api+json, "+controller.JSONOfDraft)
		return names, err
	}
	names, prefixed, err := s.library(ctx, s.dialect.Data+"/"+libraryOfRFC, controller.JSONOfRFC)
	if err == nil && s.cfg.Dialect == "" && s.lists == nil {
		err = s.detect(ctx, prefixed)
	}
	return names, err
}

// detect detects the variant of RFC 8040. Oxygen's writes no prefix at the top level. Neon's
// answers a request for data that does not exist with an HTML page.
func (s *session) detect(ctx context.Context, prefixed bool) error {
	if !prefixed {
		s.dialect = controller.DialectOf(controller.Oxygen8040)
		return nil
	}
	absent := s.dialect.Entry(&codec.ListsOf(codec.Nested)[codec.ELANInstances], "coe-bridge:probe")
	err := s.Send(ctx, s.request(http.MethodGet, absent, nil), nil)
	var answer *controller.AnswerError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &answer):
		return err
	case answer.Tag == "":
		s.dialect = controller.DialectOf(controller.Neon8040)
	}
	return nil
}

// library reads a list of modules; prefixed reports whether the name at the top level has a
// prefix.
func (s *session) library(ctx context.Context, path, media string) (names []string, prefixed bool, err error) {
	q := controller.Request{Method: http.MethodGet, URL: s.base + path, Media: media, Timeout: s.cfg.Timeout, Small: true}
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

// request returns a request to the config datastore.
func (s *session) request(method, path string, body []byte) controller.Request {
	url := s.base + path
	if method == http.MethodGet && s.dialect.Query != "" {
		url += "?" + s.dialect.Query
	}
	return controller.Request{Method: method, URL: url, Media: s.dialect.Media, Body: body, Timeout: s.cfg.Timeout}
}
