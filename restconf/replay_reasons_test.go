package restconf

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The reasons why answers differ, besides the reasons for every answer (differences) and
// that Oxygen leaves the module out of the outermost name of an answer (RFC 7951 section 4
// wants it).
const (
	notThere      = "RFC 8040 4.3, RFC 9110 15.5.5: what isn't there is 404; OpenDaylight fails"
	noContent     = "RFC 8040 4.5, 4.7: success without a body is 204"
	badRequest    = "RFC 8040 7: what is wrong with a request is 400 and named; OpenDaylight fails"
	duplicate     = "RFC 8040 4.4.1: creating what exists is 409; OpenDaylight fails"
	patchKnown    = "RFC 8040 4.6, RFC 8072: both kinds of PATCH; OpenDaylight refuses both"
	xmlKnown      = "RFC 8040 5.2: XML is spoken here; OpenDaylight says 406 to its proper name"
	ifMatch       = "RFC 8040 3.4.1, RFC 9110 13.1.1: a condition that doesn't hold is 412; OpenDaylight ignores it"
	qualified     = "RFC 8040 3.5.3, RFC 7951 4: the outermost name has its module; OpenDaylight takes it without"
	quoted        = "RFC 7951 6.1: a number of 32 bits isn't a string; OpenDaylight takes it"
	location      = "RFC 8040 4.4.1: Location names what was made; OpenDaylight names what it was made in"
	anyPath       = "a raw colon in a key (RFC 8040 3.5.3 wants it encoded) and a slash at the end are taken; OpenDaylight fails, where refusing would be 400"
	defaultLeaf   = "RFC 8040 3.5.4: a leaf that isn't set is answered with its default"
	leafref       = "RFC 7950 9.9, 15.5: a reference to nothing is refused, and so isn't there later"
	computedHere  = "Netvirt's trees are computed here: clients can't write them, and find nothing that they wrote"
	emptied       = "an emptied container stays until it is deleted, as in Oxygen; Neon takes it away"
	nullIsAbsent  = "COE's own watcher sends null leaves: taken as absent in draft-02"
	patchOfRFC    = "YANG Patch is for the RFC 8040 tree, and named in the error; OpenDaylight fails on it"
	emptyShown    = "depth=1 shows the container, as Oxygen does; Neon shows nothing"
	alreadyDiffer = "it shows what an exchange before it has changed, or not, that differs itself"
)

// reasons are all exchanges that differ: by recording and reason, what we answer.
var reasons = map[string]map[string]map[string]string{
	"oxygen-rfc8040.jsonl": {
		notThere: {
			"01-get-missing-container": "404 invalid-value", "02-get-missing-container-content-config": "404 invalid-value",
			"03-get-missing-entry": "404 invalid-value", "15-get-content-nonconfig": "404 invalid-value",
			"04-delete-missing-entry": "404 data-missing", "74-delete-again": "404 data-missing",
		},
		noContent: {
			"06-put-same": "204", "07-put-app-json": "204", "70-delete": "204", "71-delete": "204", "72-delete": "204", "73-delete": "204", "75-delete-svc": "204",
		},
		badRequest: {
			"20-get-unknown-query": "400 invalid-value", "21-get-bad-depth": "400 invalid-value", "29-put-key-mismatch": "400 invalid-value",
			"30-put-malformed-json": "400 malformed-message", "31-put-empty-body": "400 malformed-message", "32-put-unknown-leaf": "400 unknown-element",
			"33-put-bad-enum": "400 invalid-value", "34-put-bad-ip": "400 invalid-value", "35-put-null-leaf": "400 invalid-value",
			"37-get-unknown-module": "400 unknown-element", "38-get-unknown-node": "400 invalid-value",
		},
		duplicate: {"24-post-dup": "409 data-exists", "25-post-two-one-exists": "409 data-exists"},
		anyPath:   {"28-post-root-slash": "409 data-exists", "45-trailing-slash-get": "200", "53-get-elan-key-rawcolon": "200"},
		qualified: {"08-put-unprefixed": "400 malformed-message", "39-get-no-module": "400 invalid-value"},
		quoted:    {"36-put-quoted-number": "400 invalid-value"},
		patchKnown: {
			"42-patch-plain": "204", "44-patch-yang": "200",
		},
		alreadyDiffer: {"43-get-after-patch": "200, other data"},
		xmlKnown:      {"12-get-accept-xml": "200"},
		ifMatch:       {"50-if-match-bad": "412 operation-failed"},
		location:      {"23-post-new": "201, another Location"},
		computedHere: {
			"54-put-key-slash": "405 operation-not-supported", "55-get-key-slash": "404 invalid-value", "56-delete-key-slash": "405 operation-not-supported",
			"57-put-mandatory-missing": "405 operation-not-supported",
			"61-put-vpn-if":            "405 operation-not-supported", "62-get-vpn-if": "404 invalid-value", "63-delete-vpn-if": "405 operation-not-supported",
			"64-put-if-tunnelish": "405 operation-not-supported", "65-get-if": "404 invalid-value", "66-delete-if": "405 operation-not-supported",
			"67-put-floating": "405 operation-not-supported", "69-delete-floating": "405 operation-not-supported",
		},
	},
	"neon-rfc8040.jsonl": {
		badRequest: {"40-get-unknown-module": "400 unknown-element", "41-get-unknown-node": "400 invalid-value"},
		qualified:  {"07-put-unprefixed": "400 malformed-message", "42-get-no-module": "400 invalid-value"},
		quoted:     {"35-put-quoted-number": "400 invalid-value"},
		anyPath:    {"17-get-key-rawcolon": "200", "18-get-trailing-slash": "200"},
		patchKnown: {"43-patch-plain": "204", "44-patch-yang": "200"},
		alreadyDiffer: {
			"45-get-after-patch": "200, other data",
		},
		xmlKnown:    {"15-get-accept-yang-xml": "200"},
		ifMatch:     {"50-if-match-bad": "412 operation-failed"},
		location:    {"25-post-new": "201, another Location"},
		defaultLeaf: {"22-get-leaf": "200"},
		emptyShown:  {"19-get-depth1": "200, other data"},
		leafref: {
			"51-mandatory-missing": "404 data-missing", "52-dangling-leafref-slash-key": "404 data-missing",
			"53-get-slash-key": "404 invalid-value", "54-delete-slash-key": "404 data-missing",
		},
		emptied: {"74-get-emptied-container": "200", "75-delete-container": "204"},
	},
	"neon-draft02.jsonl": {
		nullIsAbsent: {"38-put-null": "200"},
		patchOfRFC:   {"44-patch-yang": "415 operation-not-supported"},
		ifMatch:      {"50-if-match-bad": "412 operation-failed"},
		emptyShown:   {"19-get-depth1": "200, other data"},
		leafref: {
			"51-mandatory-missing": "404 data-missing", "52-dangling-leafref-slash-key": "404 data-missing",
			"53-get-slash-key": "404 data-missing", "54-delete-slash-key": "404 data-missing",
		},
		emptied: {"74-get-emptied-container": "200", "75-delete-container": "200"},
	},
}

// TestReplayWithReasons fails where an answer differs that is not listed, and where one
// that is listed differs otherwise or no more. Neon has no COE: what its recordings write
// are Netvirt's trees, so they are asked of a server on which clients may write them.
func TestReplayWithReasons(t *testing.T) {
	for file, listed := range reasons {
		t.Run(file, func(t *testing.T) {
			exchanges := recording(t, file)
			b := newBed(t, asRecorded(file, exchanges))
			if strings.HasPrefix(file, "oxygen") {
				putFirstPods(t, b)
			}
			expected := map[string]string{}
			for _, of := range listed {
				for name, ours := range of {
					require.NotContains(t, expected, name, "it has two reasons")
					expected[name] = ours
				}
			}
			for _, e := range exchanges {
				got := ask(b, e)
				require.Equal(t, expected[e.Name], verdict(t, e, got), "%s: %s", e.Name, got.body)
				delete(expected, e.Name)
			}
			require.Empty(t, expected, "a reason names no exchange")
		})
	}
}

// TestReplayOfWritesToComputedTrees asks the same of a server as it is: what Neon's
// recordings write is refused, and nothing is there afterwards.
func TestReplayOfWritesToComputedTrees(t *testing.T) {
	for _, file := range []string{"neon-rfc8040.jsonl", "neon-draft02.jsonl"} {
		b := newBed(t)
		before, writes := b.everything(), 0
		for _, e := range recording(t, file) {
			got := ask(b, e)
			switch {
			case e.Method == http.MethodGet, e.Method == http.MethodHead, e.Method == http.MethodOptions:
				continue
			case strings.Contains(file, "draft02") && e.Method == http.MethodPatch:
				require.Equal(t, 415, got.status, e.Name)
			default:
				require.Equal(t, "405 operation-not-supported", fmt.Sprint(got.status, " ", got.tag()), e.Name)
				require.Equal(t, "OPTIONS, HEAD, GET", got.header.Get("Allow"), e.Name)
			}
			writes++
		}
		require.Greater(t, writes, 30)
		require.Equal(t, before, b.everything())
	}
}

// asRecorded has Netvirt's trees hold what Oxygen's recording shows of them, and be
// writable for Neon's.
func asRecorded(file string, exchanges []exchange) func(*Config) {
	if !strings.HasPrefix(file, "oxygen") {
		return func(c *Config) { c.ReadOnly = nil }
	}
	return func(c *Config) {
		for _, e := range exchanges {
			top, _, _ := strings.Cut(strings.TrimPrefix(e.Path, "/rests/data/"), "?")
			tree, computed := c.ReadOnly[top]
			if !computed || e.Method != http.MethodGet {
				continue
			}
			module, _, _ := strings.Cut(top, ":")
			tree.Source = fixed{schema: c.Schema, config: strings.Replace(string(e.Answer), `{"`, `{"`+module+":", 1)}
			c.ReadOnly[top] = tree
		}
	}
}

// verdict is what we answer where it differs from what was recorded, and empty elsewhere.
func verdict(t *testing.T, e exchange, got answer) string {
	t.Helper()
	ours := strings.TrimSpace(strconv.Itoa(got.status) + " " + got.tag())
	tag := answer{body: string(e.Answer)}.tag()
	inJSON := strings.HasSuffix(e.Type, "json") && e.Method != http.MethodHead && !strings.HasPrefix(string(e.Answer), `"`)
	switch {
	case got.status != e.Status, tag != "" && tag != got.tag():
		return ours
	case e.Location != got.header.Get("Location"):
		return ours + ", another Location"
	case e.Status >= 300 || !inJSON:
		return ""
	case e.Type != got.header.Get("Content-Type"):
		return ours + ", another type"
	case bare(t, e.Answer) != bare(t, []byte(got.body)):
		return ours + ", other data"
	}
	return ""
}

// elanChosen is what Neon's renderer adds to an elan instance of its own accord.
var elanChosen = regexp.MustCompile(`(segment-type-vxlan"), "mac-timeout": 300, "elan-tag": 500\d`)

// bare is the canonical JSON without the module of its outermost name.
func bare(t *testing.T, body []byte) string {
	t.Helper()
	var named map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(elanChosen.ReplaceAll(body, []byte("$1")), &named), string(body))
	plain := map[string]json.RawMessage{}
	for name, value := range named {
		plain[name[strings.Index(name, ":")+1:]] = value
	}
	return canonical(t, []byte(text(plain)))
}
