package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/go-resty/resty/v2"

	"github.com/coe-bridge/coe-bridge/yang"
)

// dataPath is where the datastore is, in the dialect of RFC 8040.
const dataPath = "/rests/data"

const (
	dataMedia  = "application/yang-data+json"
	patchMedia = "application/yang-patch+json"
)

// errStale is of a write whose conditions do not hold any more.
var errStale = errors.New("somebody else has written meanwhile")

// refusal is an answer that says what is wrong.
type refusal struct {
	status string
	errors []*yang.Error
	// edits are what is wrong with edits of a YANG Patch, by their ids.
	edits map[string][]*yang.Error
}

// Error joins the messages.
func (r *refusal) Error() string {
	var text []string
	for _, e := range r.errors {
		text = append(text, e.Error())
	}
	return oneLine(cmp.Or(strings.Join(text, "; "), r.status))
}

type errorList struct {
	Errors []struct {
		Type    string `json:"error-type"`
		Tag     string `json:"error-tag"`
		Path    string `json:"error-path"`
		Message string `json:"error-message"`
	} `json:"error"`
}

func (l errorList) list() []*yang.Error {
	var all []*yang.Error
	for _, e := range l.Errors {
		all = append(all, &yang.Error{Type: e.Type, Tag: e.Tag, Path: e.Path, Message: cmp.Or(e.Message, e.Tag)})
	}
	return all
}

// refused reads an answer that is no success. What has to do with who asks says what
// to do.
func (c *client) refused(answer *resty.Response) error {
	var body struct {
		Errors errorList `json:"ietf-restconf:errors"`
		Draft  errorList `json:"errors"`
		Patch  struct {
			Errors errorList `json:"errors"`
			Status struct {
				Edits []struct {
					ID     string    `json:"edit-id"`
					Errors errorList `json:"errors"`
				} `json:"edit"`
			} `json:"edit-status"`
		} `json:"ietf-yang-patch:yang-patch-status"`
	}
	_ = json.Unmarshal(answer.Body(), &body) // what is no JSON says nothing
	r := &refusal{status: answer.Status(), edits: map[string][]*yang.Error{}}
	r.errors = append(append(body.Errors.list(), body.Draft.list()...), body.Patch.Errors.list()...)
	for _, e := range body.Patch.Status.Edits {
		r.edits[e.ID] = e.Errors.list()
	}
	switch answer.StatusCode() {
	case http.StatusUnauthorized:
		return c.denied(r.Error())
	case http.StatusForbidden:
		return fmt.Errorf("ask %s: %s; %s", c.url, r.Error(), c.roleHint())
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		says := r.Error()
		if !strings.Contains(says, "try again in") {
			says += "; try again in " + cmp.Or(answer.Header().Get("Retry-After"), "some") + " s"
		}
		return fmt.Errorf("ask %s: %s", c.url, says)
	case http.StatusBadRequest:
		if strings.Contains(answer.String(), "HTTP request to an HTTPS server") { // Go's server says so
			return fmt.Errorf("ask %s: it speaks https: --server https%s and --ca-file", c.url, strings.TrimPrefix(c.url, "http"))
		}
	}
	if len(r.errors) == 0 && len(r.edits) == 0 {
		return fmt.Errorf("ask %s: %s; is it a coe-bridge? (--server)", c.url, strangersWords(answer))
	}
	return r
}

// roleHint says how whoever asks may come to do more.
func (c *client) roleHint() string {
	if c.shows && c.user == "" {
		return "show another certificate with --cert and --key, or have this one's line in the bridge's --client-roles changed"
	}
	return "use another --user, or have the role in the bridge's files changed (coe-bridge passwd --role writer)"
}

// strangersWords are the status and the first line of an answer that is no document.
func strangersWords(answer *resty.Response) string {
	line, _, _ := strings.Cut(strings.TrimSpace(answer.String()), "\n")
	if line == "" || strings.ContainsAny(line[:1], "<{[") {
		return answer.Status()
	}
	return answer.Status() + ": " + line
}

// do makes a request; status codes are the caller's matter.
func (c *client) do(r *resty.Request, method, path string) (*resty.Response, error) {
	answer, err := r.Execute(method, path)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w; %s", c.url, cause(err), c.hint(err))
	}
	return answer, nil
}

// data reads the configuration at a path below the datastore; nil where there is
// none.
func (c *client) data(ctx context.Context, path string) ([]byte, error) {
	r := c.http.R().SetContext(ctx).SetHeader("Accept", dataMedia).SetQueryParam("content", "config")
	answer, err := c.do(r, http.MethodGet, dataPath+path)
	if err != nil {
		return nil, err
	}
	switch answer.StatusCode() {
	case http.StatusOK:
		return answer.Body(), nil
	case http.StatusNotFound:
		if _, known := errors.AsType[*refusal](c.refused(answer)); known {
			return nil, nil
		}
	}
	return nil, c.refused(answer)
}

// tag is the entity-tag of the configuration at a path; empty where there is none.
func (c *client) tag(ctx context.Context, path string) (string, error) {
	r := c.http.R().SetContext(ctx).SetHeader("Accept", dataMedia).SetQueryParams(map[string]string{"content": "config", "depth": "1"})
	answer, err := c.do(r, http.MethodGet, dataPath+path)
	switch {
	case err != nil:
		return "", err
	case answer.StatusCode() == http.StatusOK:
		return answer.Header().Get("Etag"), nil
	case answer.StatusCode() == http.StatusNotFound:
		return "", nil
	}
	return "", c.refused(answer)
}

// edit is one of a YANG Patch (RFC 8072).
type edit struct {
	ID        string          `json:"edit-id"`
	Operation string          `json:"operation"`
	Target    string          `json:"target"`
	Value     json.RawMessage `json:"value,omitempty"`
}

// patch makes all edits, or none of them. Their targets are below at, a path below the
// datastore. match is the entity-tag that at has to have; empty: any. A dry run writes
// nothing.
func (c *client) patch(ctx context.Context, at, match string, dryRun bool, edits []edit) error {
	body, err := json.Marshal(map[string]any{"ietf-yang-patch:yang-patch": map[string]any{"patch-id": "coe-bridge", "edit": edits}})
	if err != nil {
		return fmt.Errorf("write a YANG Patch: %w", err)
	}
	r := c.http.R().SetContext(ctx).SetHeader("Accept", dataMedia).SetHeader("Content-Type", patchMedia).SetBody(body)
	if match != "" {
		r.SetHeader("If-Match", match)
	}
	if dryRun {
		r.SetQueryParam("dry-run", "true")
	}
	answer, err := c.do(r, http.MethodPatch, dataPath+at)
	switch {
	case err != nil:
		return err
	case answer.StatusCode() == http.StatusPreconditionFailed:
		return errStale
	case !answer.IsSuccess():
		return c.refused(answer)
	}
	return nil
}
