package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// between is the URL of a proxy before a bridge, which shows each request to look first.
func between(t *testing.T, bridge string, look func(*http.Request)) string {
	t.Helper()
	to, err := url.Parse(bridge)
	require.NoError(t, err)
	proxy := &httputil.ReverseProxy{
		FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) {
			look(r.In)
			r.SetURL(to)
		},
	}
	server := httptest.NewServer(proxy)
	t.Cleanup(server.Close)
	return server.URL
}

// change is a line of coe-bridge watch -o json.
type change struct {
	Time, Event, Kind, Key, Name string
	Value                        json.RawMessage
}

func changes(t *testing.T, text string) (all []change) {
	t.Helper()
	for line := range strings.Lines(text) {
		var one change
		if strings.HasPrefix(line, "coe-bridge: ") { // a message on standard error
			continue
		}
		require.NoError(t, json.Unmarshal([]byte(line), &one), line)
		all = append(all, one)
	}
	return all
}

func TestWatchStream(t *testing.T) {
	bridgeFor(t)
	_, err := run(t, sheet, "apply", "-f", "-")
	require.NoError(t, err)
	all, one, asJSON := start(t, "watch", "pods"), start(t, "watch", "pods", "shop/api"), start(t, "watch", "pods", "-o", "json")
	all.await(t, "shop/api")
	one.await(t, "shop/api")
	asJSON.await(t, `"shop/api"`)
	_, err = run(t, strings.Replace(sheet, "*node", "192.168.33.13", 1), "apply", "-f", "-")
	require.NoError(t, err)
	_, err = run(t, "", "delete", "pod", "shop/web")
	require.NoError(t, err)
	all.await(t, "DELETED")
	one.await(t, "MODIFIED")
	asJSON.await(t, "DELETED")
	for _, w := range []*background{all, one, asJSON} {
		w.interrupt()
		require.NoError(t, <-w.done)
	}
	line := func(event, uid, name string) string {
		return `\d\d:\d\d:\d\d\.\d{3} +` + event + ` +` + uid + `  ` + name + `\n`
	}
	require.Regexp(t, `^TIME +EVENT +KEY +NAME\n`+line("ADDED", webUID, "shop/web")+line("ADDED", apiUID, "shop/api")+
		line("MODIFIED", apiUID, "shop/api")+line("DELETED", webUID, "shop/web")+"$", all.text())
	require.NotContains(t, one.text(), webUID)
	told := changes(t, asJSON.text())
	require.Len(t, told, 4)
	require.Equal(t, "MODIFIED", told[2].Event)
	require.Contains(t, string(told[2].Value), "192.168.33.13")
	require.NotContains(t, all.text(), "\x1b")
}

// Over a restart of the bridge nothing is shown twice, and nothing is left out.
func TestWatchOverARestart(t *testing.T) {
	b := bridgeFor(t)
	_, err := run(t, sheet, "apply", "-f", "-")
	require.NoError(t, err)
	// The bridge comes back at another address; who watches stays where it is.
	var target atomic.Value
	target.Store(b.URL())
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		to, _ := url.Parse(target.Load().(string))
		proxy := httputil.NewSingleHostReverseProxy(to)
		proxy.FlushInterval = -1
		proxy.ServeHTTP(w, r)
	}))
	defer front.Close()
	w := start(t, "watch", "pods", "-o", "json", "--server", front.URL)
	w.await(t, `"shop/api"`)
	b.Stop()
	w.await(t, "; trying again")
	b.Restart()
	_, err = run(t, "", "delete", "pod", "shop/web", "--server", b.URL())
	require.NoError(t, err)
	post(t, b, podsPath, `{"pods": [{"uid": "8f2a6d5e-0000-4000-8000-000000000007", "name": "new"}]}`)
	target.Store(b.URL())
	w.await(t, `"default/new"`)
	w.await(t, "connected again")
	w.interrupt()
	require.NoError(t, <-w.done)
	var events []string
	for _, c := range changes(t, w.text()) {
		events = append(events, c.Event+" "+c.Name)
	}
	require.ElementsMatch(t, []string{"ADDED shop/web", "ADDED shop/api", "DELETED shop/web", "ADDED default/new"}, events)
}

func TestWatchErrors(t *testing.T) {
	bridgeFor(t)
	for _, c := range []struct{ args, says string }{
		{"watch", "watch: name a kind: pods, services"},
		{"watch elan", `"elan" is not a kind`},
		{"watch elan-instances", "watch elan-instances: clients do not write it; use coe-bridge get elan-instances -w"},
		{"watch lease", "use coe-bridge get lease -w"},
		{"watch pods -o yaml", "want table or json"},
		{"watch pods --server http://127.0.0.1:1", "is the bridge running there? (--server)"},
		{"watch pods --user eve", "knows no such user with this password; check --user eve"},
	} {
		t.Run(c.args, func(t *testing.T) {
			out, err := run(t, "", strings.Fields(c.args)...)
			require.ErrorContains(t, err, c.says)
			require.Empty(t, out)
		})
	}
	t.Run("no events", func(t *testing.T) {
		chatty := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("data: <html>\n\n")) }))
		defer chatty.Close()
		_, err := run(t, "", "watch", "pods", "--server", chatty.URL)
		require.ErrorContains(t, err, "is it a coe-bridge? (--server)")
	})
}

// A refusal of the bridge says what to do.
func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		body   string
		says   string
	}{
		"401":        {401, `{"ietf-restconf:errors":{"error":[{"error-tag":"access-denied","error-message":"the certificate has ended"}]}}`, "the certificate has ended; set COE_BRIDGE_PASSWORD"},
		"403":        {403, `{"ietf-restconf:errors":{"error":[{"error-tag":"access-denied","error-message":"eve is a reader"}]}}`, "eve is a reader; use another --user"},
		"429":        {429, `{"errors":{"error":[{"error-tag":"access-denied","error-message":"slow"}]}}`, "slow; try again in 7 s"},
		"429, timed": {429, `{"errors":{"error":[{"error-tag":"access-denied","error-message":"too many: try again in 6s"}]}}`, "too many: try again in 6s"},
		"503":        {503, "", "503 Service Unavailable; try again in 7 s"},
		"413":        {413, `{"ietf-restconf:errors":{"error":[{"error-tag":"too-big","error-message":"split it"}]}}`, "standard input: split it"},
		"stranger":   {404, "<html>", "is it a coe-bridge? (--server)"},
		"no dry run": {400, `{"ietf-restconf:errors":{"error":[{"error-tag":"invalid-value","error-message":"there is no query parameter dry-run"}]}}`, "no query parameter dry-run"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Retry-After", "7")
				if r.Method == http.MethodGet && c.status != 404 {
					http.Error(w, `{"ietf-restconf:errors":{"error":[{"error-tag":"invalid-value"}]}}`, http.StatusNotFound)
					return
				}
				w.WriteHeader(c.status)
				_, _ = w.Write([]byte(c.body))
			}))
			defer server.Close()
			out, err := run(t, sheet, "apply", "-f", "-", "--server", server.URL)
			require.ErrorContains(t, err, c.says)
			require.Equal(t, strings.Count(c.says, "again"), strings.Count(err.Error(), "again"), err)
			require.Empty(t, out)
		})
	}
	t.Run("no answer", func(t *testing.T) {
		ended := make(chan struct{})
		server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-r.Context().Done():
			case <-ended:
			}
		}))
		defer server.Close()
		defer close(ended)
		_, err := run(t, sheet, "apply", "-f", "-", "--server", server.URL, "--timeout", "200ms")
		require.Error(t, err)
	})
	t.Run("an answer after the timeout", func(t *testing.T) {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
		defer server.Close()
		_, err := run(t, sheet, "apply", "-f", "-", "--server", server.URL, "--timeout", "1ns")
		require.Error(t, err)
	})
}
