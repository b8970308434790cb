package restconf

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"
	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// tab is a tab of a real Chromium, driven by its own protocol. It has no network but
// this machine's.
type tab struct {
	t      *testing.T
	conn   *websocket.Conn
	calls  int
	events []string // that the browser told of meanwhile
}

func openTab(t *testing.T) *tab {
	t.Helper()
	if testing.Short() {
		t.Skip("needs Chromium")
	}
	at := startChromium(t)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://"+at+"/json/new?about:blank", nil)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	var made struct {
		URL string `json:"webSocketDebuggerUrl"`
	}
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&made))
	conn, _, err := websocket.Dial(t.Context(), made.URL, nil) //nolint:bodyclose // the library takes it
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.CloseNow() })
	conn.SetReadLimit(16 << 20)
	b := &tab{t: t, conn: conn}
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		b.call(domain+".enable", nil)
	}
	return b
}

// startChromium returns where it listens.
func startChromium(t *testing.T) string {
	path, err := exec.LookPath("chromium")
	require.NoError(t, err, "install the Debian package chromium")
	ctx, cancel := context.WithCancel(context.Background())
	command := exec.CommandContext(ctx, path, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--no-first-run", "--disable-background-networking", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
		"--user-data-dir="+t.TempDir(), "--remote-debugging-port=0", "about:blank")
	stderr, err := command.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, command.Start())
	drained := make(chan struct{})
	t.Cleanup(func() {
		cancel()
		<-drained
		_ = command.Wait() // it was killed
	})
	found := make(chan string, 1)
	go func() {
		defer close(drained)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			if _, rest, ok := strings.Cut(lines.Text(), "DevTools listening on ws://"); ok {
				found <- rest[:strings.IndexByte(rest, '/')]
			}
		}
		_, _ = io.Copy(io.Discard, stderr)
	}()
	select {
	case at := <-found:
		return at
	case <-time.After(patience.Patience):
		require.Fail(t, "Chromium did not start")
		return ""
	}
}

// call asks the browser, and keeps what it tells of until it answers.
func (b *tab) call(method string, params any) json.RawMessage {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), patience.Patience)
	defer cancel()
	b.calls++
	require.NoError(b.t, wsjson.Write(ctx, b.conn, map[string]any{"id": b.calls, "method": method, "params": params}))
	for {
		var got struct {
			ID            int
			Method        string
			Params        json.RawMessage
			Result, Error json.RawMessage
		}
		require.NoError(b.t, wsjson.Read(ctx, b.conn, &got))
		if got.ID == b.calls {
			require.Empty(b.t, string(got.Error), method)
			return got.Result
		}
		b.events = append(b.events, got.Method+" "+string(got.Params))
	}
}

// eval is what an expression of the page's scripts is, as JSON.
func (b *tab) eval(expression string) string {
	b.t.Helper()
	var got struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails json.RawMessage
	}
	require.NoError(b.t, json.Unmarshal(b.call("Runtime.evaluate", map[string]any{
		"expression": expression, "returnByValue": true, "awaitPromise": true,
	}), &got))
	require.Empty(b.t, string(got.ExceptionDetails), expression)
	return string(got.Result.Value)
}

// until waits for an expression to hold.
func (b *tab) until(expression string) {
	b.t.Helper()
	require.Eventually(b.t, func() bool { return b.eval("!!("+expression+")") == "true" }, patience.Patience, 50*time.Millisecond, expression)
}

// told are the events of a kind.
func (b *tab) told(method string) []string {
	var found []string
	for _, e := range b.events {
		if strings.HasPrefix(e, method+" ") {
			found = append(found, e)
		}
	}
	return found
}

// A person opens the page, finds the pods, makes one and reads it. The page loads
// nothing from elsewhere, and breaks no rule of its policy.
func TestPageInABrowser(t *testing.T) {
	b := newBed(t)
	server, err := url.Parse(served(t, b.Server))
	require.NoError(t, err)
	page := openTab(t)
	server.User = url.UserPassword("admin", "admin")
	server.Path = "/apidoc"
	page.call("Page.navigate", map[string]any{"url": server.String()})
	page.until(`document.querySelector("#groups a[aria-current]")`)
	require.JSONEq(t, `"RFC 8040 pod:coe"`, page.eval(`document.querySelector("#group").textContent`))
	require.JSONEq(t, `true`, page.eval(`document.querySelectorAll("#groups a").length > 40`))

	const put = "PUT /rests/data/pod:coe/pods={uid}"
	page.eval(`const find = (text) => [...document.querySelectorAll("#operations > details")].find((one) => one.querySelector("summary").textContent.startsWith(text));
		const open = (text) => { const one = find(text); one.open = true; return one; };
		const set = (form, label, value) => { const found = [...form.querySelectorAll("label")].find((one) => one.textContent === label);
			document.getElementById(found.htmlFor).value = value; }; open("` + put + `"); 0`)
	page.until(`find("` + put + `").querySelector("details")`)
	page.eval(`find("` + put + `").querySelector("details").open = true`)
	page.until(`find("` + put + `").querySelector("form")`)
	require.JSONEq(t, `{"pod:pods":[{"uid":""}]}`, page.eval(`JSON.parse(find("`+put+`").querySelector("textarea").value)`))
	page.eval(fmt.Sprintf(`{ const form = find(%[1]q).querySelector("form"); set(form, "uid", %[2]q);
		set(form, "Body", JSON.stringify({"pod:pods": [{uid: %[2]q, name: "busybox1"}]})); form.requestSubmit(); }`, put, uid1))
	page.until(`find("` + put + `").querySelector("[role=status] strong")`)
	require.JSONEq(t, `"201 Created"`, page.eval(`find("`+put+`").querySelector("[role=status] strong").textContent`))
	require.Contains(t, b.do("GET", "/rests/data/pod:coe/pods="+uid1, "").body, "busybox1")

	search := `{ const input = document.getElementById("search"); input.value = "elan-instances"; input.dispatchEvent(new Event("input")); }`
	page.eval(search)
	require.JSONEq(t, `true`, page.eval(`document.getElementById("found").textContent.endsWith(" found")`))
	require.JSONEq(t, `0`, page.eval(`[...document.querySelectorAll("#operations summary")].filter((one) => one.textContent.startsWith("PUT")).length`))

	unlabelled := `[...document.querySelectorAll("input, select, textarea")].filter((one) => one.labels.length === 0).length`
	require.JSONEq(t, `0`, page.eval(unlabelled))
	require.JSONEq(t, `"en"`, page.eval(`document.documentElement.lang`))
	light := page.eval(`getComputedStyle(document.body).backgroundColor`)
	page.call("Emulation.setEmulatedMedia", map[string]any{"features": []any{map[string]string{"name": "prefers-color-scheme", "value": "dark"}}})
	require.NotEqual(t, light, page.eval(`getComputedStyle(document.body).backgroundColor`))

	require.Empty(t, page.told("Runtime.exceptionThrown"))
	require.Empty(t, page.told("Log.entryAdded"))
	asked := page.told("Network.requestWillBeSent")
	require.NotEmpty(t, asked)
	for _, one := range asked {
		var sent struct {
			Request struct{ URL string }
		}
		require.NoError(t, json.Unmarshal([]byte(strings.TrimPrefix(one, "Network.requestWillBeSent ")), &sent))
		to, err := url.Parse(sent.Request.URL)
		require.NoError(t, err)
		require.True(t, to.Host == server.Host || to.Scheme == "data", to)
	}
}

// A user of the keyboard reaches every part of the page, and sees the focus.
func TestPageByKeyboard(t *testing.T) {
	b := newBed(t)
	page := openTab(t)
	server, err := url.Parse(served(t, b.Server))
	require.NoError(t, err)
	server.User, server.Path = url.UserPassword("admin", "admin"), "/apidoc/"
	page.call("Page.navigate", map[string]any{"url": server.String()})
	page.until(`document.querySelector("#groups a[aria-current]")`)
	press := func(key string, code int, text string) {
		for _, kind := range []string{"keyDown", "keyUp"} {
			params := map[string]any{"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code}
			if kind == "keyDown" && text != "" {
				params["text"] = text
			}
			page.call("Input.dispatchKeyEvent", params)
		}
	}
	press("Tab", 9, "")
	require.JSONEq(t, `"Skip to the resources"`, page.eval(`document.activeElement.textContent`))
	require.JSONEq(t, `true`, page.eval(`document.activeElement.getBoundingClientRect().left >= 0`))
	press("Enter", 13, "\r")
	page.until(`document.activeElement.id === "main"`)
	press("Tab", 9, "")
	require.JSONEq(t, `"SUMMARY"`, page.eval(`document.activeElement.tagName`))
	require.JSONEq(t, `"solid"`, page.eval(`getComputedStyle(document.activeElement).outlineStyle`))
	press("Enter", 13, "\r")
	page.until(`document.activeElement.parentElement.open`)
}
