package odlfake

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
)

// alone runs a request that changes data. In RFC 8040 of Oxygen and Neon, two such requests
// must not run at the same time.
func (x *exchange) alone(do func()) {
	if x.draft || x.release.rules.strict {
		do()
		return
	}
	x.mu.Lock()
	x.writers++
	crowd := x.writers > 1
	x.mu.Unlock()
	defer func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.writers--
	}()
	if crowd {
		x.fail(http.StatusInternalServerError, "operation-failed", "transaction chain")
		return
	}
	do()
}

// write reads the body and writes its entries.
func (x *exchange) write(do func(entries []stored)) {
	x.alone(func() {
		body, err := io.ReadAll(x.r.Body)
		if err != nil {
			return
		}
		if x.container == "" {
			x.postRoot(body)
			return
		}
		entries, err := x.decode(x.module, x.container, body)
		switch {
		case errors.Is(err, errMandatory):
			x.fail(http.StatusInternalServerError, "operation-failed", err.Error())
		case err != nil:
			x.fail(http.StatusBadRequest, "malformed-message", "Error parsing input: "+err.Error())
		case !x.draft && !x.release.rules.unprefixed && !strings.Contains(string(body), `"`+x.module+":"+entries[0].list+`"`):
			x.fail(http.StatusInternalServerError, "malformed-message", "no prefix")
		default:
			x.mu.Lock()
			defer x.mu.Unlock()
			do(entries)
		}
	})
}

func (x *exchange) put(entries []stored) {
	if len(entries) != 1 || entries[0].list != x.list || entries[0].key != x.key {
		x.fail(http.StatusBadRequest, "invalid-value", "The value for the key specified in the URI doesn't match")
		return
	}
	x.stamp(x.name(), entries[0])
	created := x.top(x.name()).put(x.list, x.key, entries[0].value)
	switch {
	case created:
		x.bare(http.StatusCreated)
	case x.draft || x.release.rules.vague:
		x.bare(http.StatusOK)
	default:
		x.bare(http.StatusNoContent)
	}
}

func (x *exchange) post(entries []stored) {
	if x.list != "" {
		x.fail(http.StatusBadRequest, "malformed-message", "Schema node was not found under the entry")
		return
	}
	if x.release.rules.strict && len(entries) != 1 {
		x.fail(http.StatusBadRequest, "malformed-message", "more than one instance")
		return
	}
	for _, e := range entries {
		if t := x.tops[x.name()]; t != nil && t.find(e.list, e.key) >= 0 {
			x.fail(http.StatusConflict, "data-exists", "Data already exists for path: "+e.key)
			return
		}
	}
	for _, e := range entries {
		x.stamp(x.name(), e)
		x.top(x.name()).put(e.list, e.key, e.value)
	}
	x.created("http://" + x.r.Host + x.r.URL.EscapedPath())
}

func (x *exchange) created(location string) {
	x.w.Header().Set("Location", location)
	if x.draft {
		x.bare(http.StatusNoContent)
	} else {
		x.bare(http.StatusCreated)
	}
}

// postRoot creates a container.
func (x *exchange) postRoot(body []byte) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(body, &members); err != nil || len(members) != 1 || strings.HasSuffix(x.r.URL.Path, "/") {
		x.fail(http.StatusBadRequest, "malformed-message", "want one container")
		return
	}
	for name, content := range members {
		x.module, x.container, _ = strings.Cut(name, ":")
		if !x.serves(x.module) || !x.knows() {
			x.fail(http.StatusBadRequest, "malformed-message", "no such container")
			return
		}
		var entries []stored
		if string(content) != "{}" {
			var err error
			if entries, err = x.decode(x.module, x.container, content); err != nil {
				x.fail(http.StatusBadRequest, "malformed-message", err.Error())
				return
			}
		}
		x.mu.Lock()
		defer x.mu.Unlock()
		if x.tops[name] != nil {
			x.fail(http.StatusConflict, "data-exists", "Data already exists for path: "+name)
			return
		}
		x.top(name)
		for _, e := range entries {
			x.stamp(name, e)
			x.top(name).put(e.list, e.key, e.value)
		}
		x.created("http://" + x.r.Host + x.r.URL.EscapedPath() + "/" + name)
	}
}

func (x *exchange) delete() {
	x.mu.Lock()
	defer x.mu.Unlock()
	there := x.tops[x.name()] != nil
	if x.list != "" {
		there = x.remove(x.name(), x.list, x.key)
	} else {
		delete(x.tops, x.name())
	}
	switch {
	case !there:
		x.fail(http.StatusNotFound, "data-missing", "Data does not exist for path: "+x.key)
	case x.draft || x.release.rules.vague:
		x.bare(http.StatusOK)
	default:
		x.bare(http.StatusNoContent)
	}
}
