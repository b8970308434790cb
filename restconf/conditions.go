package restconf

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/coe-bridge/coe-bridge/restconf/tree"
)

// conditions are a request's preconditions (RFC 9110 section 13.1). A missing header is
// nil. A time that is missing or not an HTTP date is zero.
type conditions struct {
	match, noneMatch          []string // entity-tags as they are given, or "*"
	modifiedSince, unmodified time.Time
}

// condition is what a write's headers demand of its target.
func (q *request) condition() tree.Condition {
	c := conditionsOf(q.http.Header)
	if !c.given() {
		return tree.Condition{}
	}
	return tree.Condition{
		At:     q.target,
		Needed: q.http.Method == http.MethodDelete || q.http.Method == http.MethodPatch && q.query.Patch == nil,
		Holds:  func(v tree.Version, exists bool) bool { return c.verdict(tagged{Version: v}, exists, false) == 0 },
	}
}

func conditionsOf(h http.Header) conditions {
	c := conditions{
		match:         entityTags(h["If-Match"]),
		noneMatch:     entityTags(h["If-None-Match"]),
		modifiedSince: httpDate(h["If-Modified-Since"]),
		unmodified:    httpDate(h["If-Unmodified-Since"]),
	}
	if c.modifiedSince.After(time.Now()) {
		c.modifiedSince = time.Time{} // this server did not send it
	}
	return c
}

// entityTags are the entity-tags in a header's lines; nil if there is no line. Anything
// else ends a line, since none of our tags is in the rest.
func entityTags(lines []string) []string {
	if lines == nil {
		return nil
	}
	tags := []string{}
	for _, line := range lines {
		for {
			tag, rest, ok := cutTag(strings.TrimLeft(line, " \t,"))
			if !ok {
				break
			}
			tags, line = append(tags, tag), rest
		}
	}
	return tags
}

// cutTag takes the first entity-tag, or "*", from text. A tag may hold commas.
func cutTag(text string) (tag, rest string, ok bool) {
	if rest, ok := strings.CutPrefix(text, "*"); ok {
		return "*", rest, true
	}
	open := strings.IndexByte(text, '"')
	if open < 0 || (text[:open] != "" && text[:open] != weak) {
		return "", "", false
	}
	end := strings.IndexByte(text[open+1:], '"')
	if end < 0 {
		return "", "", false
	}
	end += open + 2
	return text[:end], text[end:], true
}

func httpDate(lines []string) time.Time {
	if len(lines) != 1 {
		return time.Time{}
	}
	at, err := http.ParseTime(lines[0])
	if err != nil {
		return time.Time{}
	}
	return at
}

// given reports whether there is a precondition.
func (c conditions) given() bool {
	return c.match != nil || c.noneMatch != nil || !c.modifiedSince.IsZero() || !c.unmodified.IsZero()
}

// verdict is the result of the preconditions: 0 to go on, 304 or 412. The
// order is that of RFC 9110 section 13.2.2. exists reports whether the target exists; reads
// is set for GET and HEAD.
func (c conditions) verdict(v tagged, exists, reads bool) int {
	same := v.isVersion
	if reads {
		same = v.isAnswer
	}
	switch {
	case c.match != nil:
		if !exists || !anyTag(c.match, same) {
			return http.StatusPreconditionFailed
		}
	case !c.unmodified.IsZero() && exists && v.Modified.After(c.unmodified):
		return http.StatusPreconditionFailed
	}
	switch {
	case c.noneMatch != nil:
		if exists && anyTag(c.noneMatch, func(tag string) bool { return same(strings.TrimPrefix(tag, weak)) }) {
			if reads {
				return http.StatusNotModified
			}
			return http.StatusPreconditionFailed
		}
	case reads && !c.modifiedSince.IsZero() && !v.Modified.IsZero() && !v.Modified.After(c.modifiedSince):
		return http.StatusNotModified
	}
	return 0
}

func anyTag(tags []string, is func(string) bool) bool {
	return slices.ContainsFunc(tags, func(tag string) bool { return tag == "*" || is(tag) })
}
