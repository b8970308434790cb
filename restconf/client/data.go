package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/go-resty/resty/v2"

	"github.com/coe-bridge/coe-bridge/restconf/wire"
	"github.com/coe-bridge/coe-bridge/yang"
)

// DataPath is the path of the datastore (RFC 8040).
const DataPath = "/rests/data"

// dataMedia is the media type of data.
var dataMedia = wire.RFC8040.Media[0].Name

// ErrStale is the error of a write whose conditions no longer hold.
var ErrStale = errors.New("another client has written meanwhile")

// Refusal is an answer with errors.
type Refusal struct {
	status string
	Errors []*yang.Error
	// Edits has the errors of the edits of a YANG Patch, by edit-id.
	Edits map[string][]*yang.Error
}

// Error joins the messages. The messages of edits follow the others.
func (r *Refusal) Error() string {
	var text []string
	for _, e := range r.Errors {
		text = append(text, e.Error())
	}
	for _, id := range slices.Sorted(maps.Keys(r.Edits)) {
		for _, e := range r.Edits[id] {
			text = append(text, e.Error())
		}
	}
	line := cmp.Or(strings.Join(text, "; "), r.status)
	if strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(line) // it must not forge another line
	}
	return line
}

func list(of wire.ErrorList) []*yang.Error {
	var all []*yang.Error
	for _, e := range of.Errors {
		all = append(all, &yang.Error{Type: e.Type, Tag: e.Tag, Path: e.Path, Message: cmp.Or(e.Message, e.Tag)})
	}
	return all
}

// refused is the error of an answer without success. If it concerns the login or the role,
// it says what to do.
func (c *Client) refused(answer *resty.Response) error {
	var body struct {
		Errors wire.ErrorList `json:"ietf-restconf:errors"`
		Draft  wire.ErrorList `json:"errors"`
		Patch  struct {
			Errors wire.ErrorList `json:"errors"`
			Status struct {
				Edits []wire.EditStatus `json:"edit"`
			} `json:"edit-status"`
		} `json:"ietf-yang-patch:yang-patch-status"`
	}
	_ = json.Unmarshal(answer.Body(), &body) // an answer without JSON has no errors
	r := &Refusal{status: answer.Status(), Edits: map[string][]*yang.Error{}}
	r.Errors = slices.Concat(list(body.Errors), list(body.Draft), list(body.Patch.Errors))
	for _, e := range body.Patch.Status.Edits {
		r.Edits[e.ID] = list(e.Errors)
	}
	switch answer.StatusCode() {
	case http.StatusUnauthorized:
		return c.denied(r.Error())
	case http.StatusForbidden:
		return fmt.Errorf("ask %s: %s; %s", c.URL, r.Error(), c.roleHint())
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		says := r.Error()
		if !strings.Contains(says, "try again in") {
			says += "; try again in " + cmp.Or(answer.Header().Get("Retry-After"), "some") + " s"
		}
		return fmt.Errorf("ask %s: %s", c.URL, says)
	case http.StatusBadRequest:
		if strings.Contains(answer.String(), "HTTP request to an HTTPS server") { // the text of Go's server
			return fmt.Errorf("ask %s: it speaks https: --server https%s and --ca-file", c.URL, strings.TrimPrefix(c.URL, "http"))
		}
	}
	if len(r.Errors) == 0 && len(r.Edits) == 0 {
		return fmt.Errorf("ask %s: %s; is it a coe-bridge? (--server)", c.URL, firstLine(answer))
	}
	return r
}

// roleHint says how to get a role that may do more.
func (c *Client) roleHint() string {
	if c.shows && c.user == "" {
		return "show another certificate with --cert and --key, or change the line of this one in the bridge's --client-roles"
	}
	return "use another --user, or change the role in the bridge's --auth-file (coe-bridge passwd --role writer)"
}

// firstLine is the status, and the first line of an answer that is plain text.
func firstLine(answer *resty.Response) string {
	line, _, _ := strings.Cut(strings.TrimSpace(answer.String()), "\n")
	if line == "" || strings.ContainsAny(line[:1], "<{[") {
		return answer.Status()
	}
	return answer.Status() + ": " + line
}

// do makes a request. Status codes are left to the caller.
func (c *Client) do(r *resty.Request, method, path string) (*resty.Response, error) {
	answer, err := r.Execute(method, path)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w; %s", c.URL, c.cause(err), c.hint(err))
	}
	return answer, nil
}

// Data reads the configuration at a path below the datastore; nil if there is none.
func (c *Client) Data(ctx context.Context, path string) ([]byte, error) {
	r := c.http.R().SetContext(ctx).SetHeader("Accept", dataMedia).SetQueryParam("content", "config")
	answer, err := c.do(r, http.MethodGet, DataPath+path)
	if err != nil {
		return nil, err
	}
	switch answer.StatusCode() {
	case http.StatusOK:
		return answer.Body(), nil
	case http.StatusNotFound:
		if _, known := errors.AsType[*Refusal](c.refused(answer)); known {
			return nil, nil
		}
	}
	return nil, c.refused(answer)
}

// Tag reads the entity-tag of the configuration at a path; empty if there is none.
func (c *Client) Tag(ctx context.Context, path string) (string, error) {
	r := c.http.R().SetContext(ctx).SetHeader("Accept", dataMedia).SetQueryParams(map[string]string{"content": "config", "depth": "1"})
	answer, err := c.do(r, http.MethodGet, DataPath+path)
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

// Edit is an edit of a YANG Patch (RFC 8072).
type Edit struct {
	ID        string          `json:"edit-id"`
	Operation string          `json:"operation"`
	Target    string          `json:"target"`
	Value     json.RawMessage `json:"value,omitempty"`
}

// Patch makes all edits, or none. Their targets are below at, a path below the datastore.
// match is the entity-tag that at must have; empty for any. A dry run writes nothing.
func (c *Client) Patch(ctx context.Context, at, match string, dryRun bool, edits []Edit) error {
	body, err := json.Marshal(map[string]any{"ietf-yang-patch:yang-patch": map[string]any{"patch-id": "coe-bridge", "edit": edits}})
	if err != nil {
		return fmt.Errorf("write a YANG Patch: %w", err)
	}
	r := c.http.R().SetContext(ctx).SetHeader("Accept", dataMedia).SetHeader("Content-Type", "application/yang-patch+json").SetBody(body)
	if match != "" {
		r.SetHeader("If-Match", match)
	}
	if dryRun {
		r.SetQueryParam("dry-run", "true")
	}
	answer, err := c.do(r, http.MethodPatch, DataPath+at)
	switch {
	case err != nil:
		return err
	case answer.StatusCode() == http.StatusPreconditionFailed:
		return ErrStale
	case !answer.IsSuccess():
		return c.refused(answer)
	}
	return nil
}
