package restconf

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"

	"github.com/coe-bridge/coe-bridge/restconf/access"
	"github.com/coe-bridge/coe-bridge/restconf/discovery"
	"github.com/coe-bridge/coe-bridge/restconf/stream"
)

// accessBed is a server whose users are admin, a writer, and ann, a reader. The password
// of each is the name. The server records its audit in audit.
func accessBed(t *testing.T) (b *bed, audit *bytes.Buffer) {
	t.Helper()
	var lines string
	for name, role := range map[string]string{"admin": "writer", "ann": "reader"} {
		hash, err := bcrypt.GenerateFromPassword([]byte(name), bcrypt.MinCost)
		require.NoError(t, err)
		lines += name + ":" + role + ":" + string(hash) + "\n"
	}
	path := filepath.Join(t.TempDir(), "users")
	require.NoError(t, os.WriteFile(path, []byte(lines), 0o600))
	audit = &bytes.Buffer{}
	opened, err := access.Open(access.Config{UsersFile: path, AuditLog: "-", AuditOutput: audit},
		slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	require.NoError(t, err)
	return newBed(t, func(c *Config) { c.Auth, c.Audit, c.BodyLimit = opened, opened.Audit(), 1<<10 }), audit
}

func as(name, password string) option {
	return func(r *http.Request) { r.SetBasicAuth(name, password) }
}

// everyPath is every place that is served, and places in each tree.
func (b *bed) everyPath() []string {
	paths := slices.Collect(maps.Keys(discovery.Pages(b.modules, b.operations, b.streams.Kinds)))
	for _, prefix := range []string{
		"/rests/data", "/restconf/data", "/rests/ds/ietf-datastores:running", "/rests/ds/ietf-datastores:operational",
		"/restconf/config", "/restconf/operational",
	} {
		keyed := "="
		if strings.HasPrefix(prefix, "/restconf/config") || strings.HasPrefix(prefix, "/restconf/operational") {
			keyed = "/"
		}
		paths = append(paths, prefix, prefix+"/", "/"+prefix, prefix+"/none:such", prefix+"/pod:coe", prefix+"/pod:coe/pods"+keyed+uid1,
			prefix+"/pod:coe/pods"+keyed+uid1+"/name", prefix+"/elan:elan-instances", prefix+"/ietf-yang-library:yang-library")
	}
	return append(paths, "/", "/none", "/rests/streams/changes", draftStreamsPrefix+"x", "/rests/operations/x:y", "/restconf/operations/x:y")
}

// A reader changes nothing, by any verb, anywhere, in any dialect and media type.
// The refusal has the form of the dialect.
func TestReadersChangeNothing(t *testing.T) {
	b, _ := accessBed(t)
	require.Equal(t, 201, b.do("PUT", pods+uid1, pod(uid1)).status)
	before, revision := b.everything(), b.store.Revision()
	for _, path := range b.everyPath() {
		for _, method := range []string{"PUT", "POST", "PATCH", "DELETE", "put", "TRACE", "CONNECT", "MERGE", "X"} {
			for _, media := range []string{"application/json", "application/xml", "application/yang-patch+json"} {
				got := b.do(method, path, podRFC(uid1), as("ann", "ann"), header("Content-Type", media), header("X-HTTP-Method-Override", "PUT"))
				require.Equal(t, 403, got.status, "%s %s: %s", method, path, got.body)
				require.Contains(t, got.body, "access-denied", "%s %s", method, path)
				require.Contains(t, got.body, "ann may read and not write")
			}
			got := b.do("GET", path, "", as("ann", "ann"), header("X-HTTP-Method-Override", method), header("Last-Event-ID", "x"))
			require.NotEqual(t, 403, got.status)
		}
	}
	require.Equal(t, before, b.everything())
	require.Equal(t, revision, b.store.Revision())

	// A reader may do whatever changes nothing.
	for _, method := range []string{"GET", "HEAD", "OPTIONS"} {
		for _, path := range []string{pods + uid1, podsRFC + uid1, "/rests", "/restconf/modules"} {
			require.Equal(t, 200, b.do(method, path, "", as("ann", "ann")).status, "%s %s", method, path)
		}
	}
	require.Equal(t, 204, b.do("DELETE", podsRFC+uid1, "").status, "a writer may")
}

// A caller that is refused gets an error in both dialects and both media types.
func TestRefusalsInBothDialects(t *testing.T) {
	b, _ := accessBed(t)
	guesses := 0
	guess := func() option {
		guesses++
		return as("ann", strconv.Itoa(guesses))
	}
	limit := func() { // guesses until ann must wait for some seconds, because guesses are accepted again one by one
		for seconds := 0; seconds < 3; {
			require.Less(t, guesses, 100_000)
			seconds, _ = strconv.Atoi(b.do("GET", coe, "", guess()).header.Get("Retry-After"))
		}
	}
	for _, c := range []struct {
		name        string
		credentials func() option
		status      int
		says        string
	}{
		{"none", func() option { return header("Authorization", "") }, 401, "give a user and password"},
		{"another scheme", func() option { return header("Authorization", "Bearer x") }, 401, "give a user and password"},
		{"broken", func() option { return header("Authorization", "Basic x") }, 401, "give a user and password"},
		{"wrong", func() option { return as("ann", "guess") }, 401, "knows no such user with this password"},
		{"guessing", func() option { limit(); return guess() }, 429, "too many logins have failed"},
		{"reader", func() option { limit(); return as("ann", "ann") }, 429, "too many logins have failed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, path := range []string{pods + uid1, podsRFC + uid1, "/restconf/modules", "/rests", "/none"} {
				inJSON := b.do("PUT", path, podRFC(uid1), c.credentials())
				require.Equal(t, c.status, inJSON.status, inJSON.body)
				require.Equal(t, "access-denied", inJSON.tag())
				require.Contains(t, inJSON.body, c.says)
				require.Equal(t, dialectOf(httptest.NewRequest("GET", path, http.NoBody)).Errors.Name, inJSON.header.Get("Content-Type"))
				require.Equal(t, c.status == 401, strings.HasPrefix(inJSON.header.Get("WWW-Authenticate"), "Basic realm="))
				require.Equal(t, c.status == 429, inJSON.header.Get("Retry-After") != "")

				inXML := b.do("PUT", path, podRFC(uid1), c.credentials(), header("Accept", "application/xml"))
				require.Equal(t, c.status, inXML.status)
				isDenied(t, inXML, c.says)
			}
		})
	}
	require.Equal(t, 404, b.do("GET", coe, "").status, "nothing was written, and who does not guess is let in")
	forbidden, _ := accessBed(t)
	for _, path := range []string{pods + uid1, podsRFC + uid1} {
		got := forbidden.do("DELETE", path, "", as("ann", "ann"), header("Accept", "application/xml"))
		require.Equal(t, 403, got.status)
		isDenied(t, got, "ann may read and not write")
	}
}

// isDenied looks at an error in XML.
func isDenied(t *testing.T, got answer, says string) {
	t.Helper()
	var body struct {
		XMLName xml.Name `xml:"errors"`
		Error   []struct {
			Tag     string `xml:"error-tag"`
			Message string `xml:"error-message"`
		} `xml:"error"`
	}
	require.Contains(t, got.header.Get("Content-Type"), "xml")
	require.NoError(t, xml.Unmarshal([]byte(got.body), &body), got.body)
	require.Len(t, body.Error, 1)
	require.Equal(t, "access-denied", body.Error[0].Tag)
	require.Contains(t, body.Error[0].Message, says)
}

// Attempts of a reader and writes of a writer are recorded, with the revision that it made,
// and without what was in it.
func TestAudit(t *testing.T) {
	b, audit := accessBed(t)
	last := func() map[string]any {
		lines := strings.Split(strings.TrimSpace(audit.String()), "\n")
		var record map[string]any
		require.NoError(t, json.Unmarshal([]byte(lines[len(lines)-1]), &record))
		return record
	}
	patch := `{"ietf-yang-patch:yang-patch":{"patch-id":"a","edit":[{"edit-id":"1","operation":"merge","target":"/pods=` + uid1 + `","value":` + podRFC(uid1) + `}]}}`
	for _, c := range []struct {
		method, path, body string
		options            []option
		status             int
		writes             bool
	}{
		{"PUT", pods + uid1, pod(uid1), nil, 201, true},
		{"POST", "/rests/data", `{"pod:coe":{"pods":[{"uid":"` + uid2 + `"}]}}`, nil, 409, false},
		{"POST", coeRFC + "?insert=first", `{"pod:pods":[{"uid":"` + uid2 + `"}]}`, nil, 400, false},
		{"PATCH", coeRFC, patch, []option{header("Content-Type", "application/yang-patch+json")}, 200, false},
		{"PATCH", coeRFC, strings.Replace(patch, `"merge"`, `"remove"`, 1), []option{header("Content-Type", "application/yang-patch+json")}, 400, false},
		{"PATCH", podsRFC + uid1, `{"pod:pods":[{"uid":"` + uid1 + `","name":"other"}]}`, nil, 204, true},
		{"PUT", pods + uid1, `{"pods":[`, nil, 400, false},
		{"PUT", "/none", pod(uid1), nil, 404, false},
		{"DELETE", podsRFC + uid1, "", []option{as("ann", "ann")}, 403, false},
		{"DELETE", podsRFC + uid1, "", nil, 204, true},
	} {
		got := b.do(c.method, c.path, c.body, c.options...)
		require.Equal(t, c.status, got.status, "%s %s: %s", c.method, c.path, got.body)
		record := last()
		path, _, _ := strings.Cut(c.path, "?")
		require.Equal(t, []any{c.method, path, float64(c.status)}, []any{record["method"], record["path"], record["status"]})
		require.NotEmpty(t, record["from"])
		if c.writes {
			require.EqualValues(t, b.store.Revision(), record["revision"])
		}
		if c.status >= 400 {
			require.NotContains(t, record, "revision")
		}
	}
	require.NotContains(t, audit.String(), "10.9.9.9", "bodies")
	require.NotContains(t, audit.String(), "Basic")

	before := audit.Len()
	for _, method := range []string{"GET", "HEAD", "OPTIONS"} {
		b.do(method, coe, "")
	}
	b.do("DELETE", coe, "", as("admin", "guess"))
	require.Equal(t, before, audit.Len(), "reading is not recorded, nor who is not known")
}

// A connection whose body is too large is closed, also where writes are recorded.
func TestTooLargeBodyEndsTheConnection(t *testing.T) {
	b, audit := accessBed(t)
	server := httptest.NewServer(b)
	defer server.Close()
	sendTooMuch(t, server.URL)
	require.Contains(t, audit.String(), `"status":413`)
}

// patient takes what is flushed, whatever the deadline.
type patient struct{ *httptest.ResponseRecorder }

func (patient) SetReadDeadline(time.Time) error { return nil }

func (patient) SetWriteDeadline(time.Time) error { return nil }

// A stream ends at the beat after its client's credentials were taken away; that too
// many logins fail for a while, or that nobody can be asked, ends none.
func TestStreamsEndWithTheirCredentials(t *testing.T) {
	limited, unjudged, denied := &access.LimitedError{}, &access.UnjudgedError{}, &access.DeniedError{}
	for name, answers := range map[string][]error{
		"denied":         {nil, limited, unjudged, nil, denied},
		"limited":        {limited, limited, limited, limited, limited},
		"limited again":  {limited, limited, limited, limited, nil, limited, limited, limited, limited, unjudged, denied},
		"can't be asked": {unjudged, unjudged, unjudged, unjudged, unjudged, unjudged, unjudged, denied},
	} {
		t.Run(name, func(t *testing.T) { streamEndsAfter(t, answers) })
	}
}

// streamEndsAfter lets a stream's client be judged so at each beat, the last of which ends it.
func streamEndsAfter(t *testing.T, answers []error) {
	synctest.Test(t, func(t *testing.T) {
		asked := make(judge)
		s := &Server{cfg: Config{Auth: asked}, shares: shares{maxStreams: 1}}
		r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		place, err := s.shares.enter(t.Context(), holder{})
		require.NoError(t, err)
		streams := &stream.Server{Kinds: map[string]stream.Kind{"things": {Source: newLogs()}}}
		begin, done := time.Now(), make(chan error, 1)
		go func() {
			done <- streams.Serve(patient{httptest.NewRecorder()}, r, "things", &streamCaller{held: place, server: s, request: r})
		}()
		for _, answer := range answers {
			asked <- answer
		}
		require.NoError(t, <-done)
		require.Equal(t, time.Duration(len(answers))*stream.Beat, time.Since(begin))
	})
}

// judge is an Authenticator that a test tells what to say each time.
type judge chan error

// Authenticate implements access.Authenticator.
func (j judge) Authenticate(*http.Request) (access.Identity, error) {
	return access.Identity{Role: access.Reader}, <-j
}

// A write is made even if the client does not wait for it, so the record has its
// result.
func TestAuditOfWhoGoesAway(t *testing.T) {
	b, audit := accessBed(t)
	require.Equal(t, 200, b.do("GET", "/rests", "").status, "the password is known from here on: hashing it ends with the request")
	patch := patchBody(false, testEdit{id: "1", operation: "merge", target: "/pods=" + uid2, value: podValue(uid2)})
	for _, c := range []struct {
		method, path, body, media string
		status                    int
	}{
		{"PUT", podsRFC + uid1, podRFC(uid1), "application/json", 201},
		{"PATCH", coeRFC, patch, "application/yang-patch+json", 200},
	} {
		audit.Reset()
		ctx, leave := context.WithCancel(t.Context())
		leave()
		got := b.do(c.method, c.path, c.body, header("Content-Type", c.media), func(r *http.Request) { *r = *r.WithContext(ctx) })
		require.Equal(t, c.status, got.status, got.body)
		var record struct {
			Status   int
			Revision int64
		}
		require.NoError(t, json.Unmarshal(audit.Bytes(), &record))
		require.Equal(t, c.status, record.Status)
		require.Equal(t, b.store.Revision(), record.Revision)
	}
	require.Equal(t, 200, b.do("GET", podsRFC+uid1, "").status)
	require.Equal(t, 200, b.do("GET", podsRFC+uid2, "").status)
}

// However the path of a subscription is written, it is one: a reader may ask for it.
func TestReadersSubscribe(t *testing.T) {
	b, audit := accessBed(t)
	for _, path := range []string{subscribePath, subscribePath + "/", subscribePath + "//", "/" + subscribePath, strings.Replace(subscribePath, "/op", "//op", 1)} {
		for _, name := range []string{"ann", "admin"} {
			got := b.do("POST", path, `{"input":{"path":"/pod:coe"}}`, as(name, name))
			require.Equal(t, 200, got.status, "%s by %s: %s", path, name, got.body)
		}
	}
	require.Empty(t, audit.String(), "it changes nothing")
}
