package odlfake

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// exchange is a request with its answer.
type exchange struct {
	*Controller
	w     http.ResponseWriter
	r     *http.Request
	draft bool
	// The target: a container, or an entry of a list in it; neither for the root.
	module, container, list, key string
}

const (
	draftRoot = "/restconf/config"
	rfcRoot   = "/rests/data"
	library   = "/restconf/modules"
)

// ServeHTTP implements http.Handler.
func (c *Controller) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	c.requests[r.Method]++
	c.tagLate()
	fault, loading, password := c.fault, c.loading, c.password
	c.mu.Unlock()
	if fault != nil && fault(w, r) {
		return
	}
	if loading >= 400 {
		w.WriteHeader(loading)
		return
	}
	if user, given, _ := r.BasicAuth(); user != User || given != password {
		w.Header().Set("WWW-Authenticate", `Basic realm="application"`)
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	(&exchange{Controller: c, w: w, r: r}).answer(r.URL.EscapedPath())
}

// answer finds the datastore of a path, and answers.
func (x *exchange) answer(path string) {
	draft, isDraft := strings.CutPrefix(path, draftRoot)
	state, isState := strings.CutPrefix(path, operationalRoot)
	rfc, isRFC := strings.CutPrefix(path, rfcRoot)
	isDraft, isState, isRFC = isDraft && x.release.Draft02, isState && x.release.Draft02, isRFC && x.release.RFC8040
	x.draft = isDraft || isState
	switch {
	case x.release.Draft02 && path == library:
		x.library("modules")
	case isRFC && rfc == "/ietf-yang-library:modules-state":
		x.library(x.topName("ietf-yang-library", "modules-state"))
	case isState:
		x.operational(state)
	case isRFC && x.r.URL.Query().Get("content") == "nonconfig":
		x.operational(rfc)
	case isDraft:
		x.config(draft)
	case isRFC:
		x.config(rfc)
	default:
		x.w.WriteHeader(http.StatusNotFound)
	}
}

// config answers a request to the config datastore.
func (x *exchange) config(path string) {
	if strings.HasPrefix(path, tagPool) {
		x.tags()
		return
	}
	if x.target(path) && x.acceptable() {
		x.serve()
	}
}

func (x *exchange) serve() {
	switch x.r.Method {
	case http.MethodGet, http.MethodHead:
		x.get()
	case http.MethodPut:
		x.write(x.put)
	case http.MethodPost:
		x.write(x.post)
	case http.MethodDelete:
		x.alone(x.delete)
	default:
		x.w.WriteHeader(http.StatusMethodNotAllowed)
	}
}

// target parses the path below the root.
func (x *exchange) target(path string) bool {
	if x.draft {
		path = strings.TrimRight(path, "/")
	}
	parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
	if path == "" {
		return true
	}
	if parts[0] == aclModule+":access-lists" {
		return x.accessList(parts)
	}
	if !x.draft && len(parts) == 2 {
		list, key, _ := strings.Cut(parts[1], "=")
		parts = []string{parts[0], list, key}
	} else if !x.draft && len(parts) == 3 {
		list, key, _ := strings.Cut(parts[1], "=")
		parts = []string{parts[0], list, key, parts[2]}
	}
	return x.resolve(parts)
}

// resolve finds the node that the parts of a path name.
func (x *exchange) resolve(parts []string) bool {
	if len(parts) == 4 && parts[3] == "ipv4-family" && x.release.L3VPN != Flat {
		x.missing() // no client requests an existing node like this
		return false
	}
	if len(parts) != 1 && len(parts) != 3 {
		return x.fail(http.StatusBadRequest, "invalid-value", "URI has bad format.")
	}
	var prefixed bool
	if x.module, x.container, prefixed = strings.Cut(parts[0], ":"); !prefixed {
		x.module, x.container = x.moduleOf(parts[0]), parts[0]
	}
	switch {
	case x.draft && !prefixed:
		return x.fail(http.StatusBadRequest, "invalid-value", "First node in URI has to be in format \"moduleName:nodeName\"")
	case !x.serves(x.module):
		return x.fail(http.StatusBadRequest, "unknown-element", "The module named '"+x.module+"' does not exist.")
	case !x.knows():
		return x.fail(http.StatusBadRequest, "invalid-value", "URI has bad format.")
	case len(parts) == 3 && !x.draft && strings.Contains(parts[2], ":"):
		return x.fail(http.StatusInternalServerError, "invalid-value", "a colon in a key")
	case len(parts) == 3:
		key, err := url.PathUnescape(parts[2])
		if err != nil {
			return x.fail(http.StatusBadRequest, "invalid-value", err.Error())
		}
		x.list, x.key = parts[1], key
	}
	return true
}

func (x *exchange) moduleOf(container string) string {
	for _, m := range x.schema.Modules {
		if m.Child(container) != nil {
			return m.Name
		}
	}
	return ""
}

func (x *exchange) knows() bool {
	if loose := x.looseLists(x.module); loose != nil {
		return loose[x.container].name != ""
	}
	return x.schema.Module(x.module).Child(x.container) != nil
}

// acceptable checks the media types that the client accepts and sends.
func (x *exchange) acceptable() bool {
	own := "application/yang-data+json"
	if x.draft {
		own = "application/yang.data+json"
	}
	switch accept := x.r.Header.Get("Accept"); accept {
	case "", "*/*", own:
		x.w.Header().Set("Content-Type", own)
	case "application/json":
		x.w.Header().Set("Content-Type", accept)
	default:
		x.w.WriteHeader(http.StatusNotAcceptable)
		return false
	}
	if x.r.Method != http.MethodPut && x.r.Method != http.MethodPost {
		return true
	}
	if sent := x.r.Header.Get("Content-Type"); sent != "application/json" && sent != own {
		x.bare(http.StatusUnsupportedMediaType)
		return false
	}
	return true
}

func (x *exchange) topName(module, name string) string {
	if x.draft || x.release.rules.unprefixed {
		return name
	}
	return module + ":" + name
}

func (x *exchange) library(top string) {
	names := x.modules()
	x.mu.Lock()
	if x.loading != 0 {
		names = []string{"ietf-yang-library"}
	}
	x.mu.Unlock()
	list := make([]map[string]string, len(names))
	for i, name := range names {
		list[i] = map[string]string{"name": name}
	}
	x.w.Header().Set("Content-Type", "application/yang.api+json")
	if x.r.URL.Path != library {
		x.w.Header().Set("Content-Type", "application/yang-data+json")
	}
	_ = json.NewEncoder(x.w).Encode(map[string]any{top: map[string]any{"module": list}})
}

func (x *exchange) name() string { return x.module + ":" + x.container }

func (x *exchange) get() {
	x.mu.Lock()
	defer x.mu.Unlock()
	t := x.tops[x.name()]
	if x.list == "" {
		if t == nil {
			x.missing()
			return
		}
		x.show(x.topName(x.module, x.container), t.content())
		return
	}
	i := -1
	if t != nil {
		i = t.find(x.list, x.key)
	}
	if i < 0 {
		x.missing()
		return
	}
	x.show(x.topName(x.module, x.list), []any{t.entries[i].value})
}

func (x *exchange) show(name string, value any) {
	if x.r.Method == http.MethodHead {
		return
	}
	_ = json.NewEncoder(x.w).Encode(map[string]any{name: value})
}

func (x *exchange) missing() {
	x.fail(http.StatusNotFound, "data-missing", "Request could not be completed because the relevant data model content does not exist ")
}

// bare answers without a body.
func (x *exchange) bare(status int) {
	x.w.Header().Del("Content-Type")
	x.w.Header()["Content-Type"] = nil
	x.w.WriteHeader(status)
}

// fail answers with an error in the form of the dialect. It returns false.
func (x *exchange) fail(status int, tag, message string) bool {
	rules := x.release.rules
	if !x.draft && !rules.strict {
		x.failVaguely(status, tag)
		return false
	}
	errorList := map[string]any{"error": []any{map[string]string{"error-type": "protocol", "error-tag": tag, "error-message": message}}}
	name, media := "errors", "application/json"
	if !x.draft {
		name, media = "ietf-restconf:errors", "application/yang-data+json"
	}
	x.w.Header().Set("Content-Type", media)
	x.w.WriteHeader(status)
	_ = json.NewEncoder(x.w).Encode(map[string]any{name: errorList})
	return false
}

// failVaguely answers like RFC 8040 of Oxygen and Neon: with an HTML page, or without a body.
func (x *exchange) failVaguely(status int, tag string) {
	if x.release.rules.vague || tag == "unknown-element" || x.r.Method == http.MethodGet && status == http.StatusBadRequest {
		status = http.StatusInternalServerError
	}
	if x.r.Method == http.MethodPut || x.r.Method == http.MethodDelete {
		x.bare(status)
		return
	}
	x.w.Header().Set("Content-Type", "text/html;charset=iso-8859-1")
	x.w.WriteHeader(status)
	_, _ = io.WriteString(x.w, "<html><body><h2>HTTP ERROR</h2></body></html>")
}
