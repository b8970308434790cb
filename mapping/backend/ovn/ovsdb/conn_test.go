package ovsdb

import (
	"bufio"
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/nb"
)

// converse connects to a server that handles one connection with the given function.
func converse(t *testing.T, server func(conn net.Conn, requests *jsontext.Decoder)) *Conn {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", path)
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		accepted, err := listener.Accept()
		if err != nil {
			return
		}
		server(accepted, jsontext.NewDecoder(bufio.NewReader(accepted)))
		_ = accepted.Close() // the other end may have been first
	}()
	c, err := Dial(t.Context(), "unix:"+path, "OVN_Northbound", nil)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, listener.Close())
		_ = c.Close() // may have ended
		<-c.Ended()
		<-done
	})
	return c
}

// request reads the next request.
func request(requests *jsontext.Decoder) string {
	v, err := requests.ReadValue()
	if err != nil {
		return "" // the connection was closed
	}
	return string(v)
}

func say(conn net.Conn, text string) { _, _ = conn.Write([]byte(text)) } // it may be closed

var oneOperation = []Operation{{json: []byte(`{"op":"comment"}`)}}

func TestConnAnswers(t *testing.T) {
	cases := map[string]struct {
		answer  string
		results []Result
		err     string
	}{
		"results": {
			`{"id":1,"error":null,"result":[{},{"count":3},{"uuid":["uuid","x"]},null,{"error":"e","details":"d\"e"}]}`,
			[]Result{{}, {Count: 3}, {}, {}, {Error: "e", Details: `d"e`}}, "",
		},
		"id after the result":       {`{"result":[{}],"error":null,"id":1}`, []Result{{}}, ""},
		"rows without a visitor":    {`{"result":[{"rows":[{"a":["set",[]]}]}],"error":null,"id":1}`, []Result{{}}, ""},
		"notification first":        {`{"method":"update","params":[1,{}],"id":null}{"result":[],"error":null,"id":1}`, nil, ""},
		"error":                     {`{"result":null,"error":{"error":"unknown database"},"id":1}`, nil, "unknown database"},
		"answer to another request": {`{"result":[],"error":null,"id":2}`, nil, "which was not the next"},
		"answer without a request":  {`{"result":[],"error":null,"id":1}{"result":[],"error":null,"id":2}`, nil, ""},
		"no result":                 {`{"error":null,"id":1}`, nil, "which was not the next"},
		"not JSON":                  {`hello`, nil, "the connection has ended"},
		"an array":                  {`[]`, nil, "the connection has ended"},
		"count is not a number":     {`{"result":[{"count":"x"}],"error":null,"id":1}`, nil, "the connection has ended"},
		"truncated":                 {`{"result":[{"rows":[{"na`, nil, "the connection has ended"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			conn := converse(t, func(conn net.Conn, requests *jsontext.Decoder) {
				request(requests)
				say(conn, c.answer)
			})
			sent, err := conn.Send(t.Context(), oneOperation, nil)
			require.NoError(t, err)
			results, err := conn.Wait(t.Context(), sent)
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.results, results)
		})
	}
}

// TestConnOrder: requests are sent before earlier ones are answered, and each call gets
// its own answer.
func TestConnOrder(t *testing.T) {
	asked := make(chan string, 3)
	c := converse(t, func(conn net.Conn, requests *jsontext.Decoder) {
		for range 3 {
			asked <- request(requests)
		}
		for _, id := range []string{"1", "2", "3"} {
			say(conn, `{"result":[{"count":`+id+`}],"error":null,"id":`+id+`}`)
		}
	})
	var sent []*Call
	for range 3 {
		one, err := c.Send(t.Context(), append(oneOperation, Operation{json: []byte(`{"op":"abort"}`)}), nil)
		require.NoError(t, err)
		sent = append(sent, one)
	}
	for i := range 3 {
		results, err := c.Wait(t.Context(), sent[i])
		require.NoError(t, err)
		require.Equal(t, []Result{{Count: int64(i + 1)}}, results)
	}
	require.JSONEq(t, `{"id":1,"method":"transact","params":["OVN_Northbound",{"op":"comment"},{"op":"abort"}]}`, <-asked)
}

// TestConnEcho: the server's echo request is answered, also while a call waits for its
// answer.
func TestConnEcho(t *testing.T) {
	echoed := make(chan string, 1)
	c := converse(t, func(conn net.Conn, requests *jsontext.Decoder) {
		request(requests)
		say(conn, `{"method":"echo","params":["x",{"y":1}],"id":"echo"}`)
		echoed <- request(requests)
		say(conn, `{"result":[],"error":null,"id":1}`)
	})
	sent, err := c.Send(t.Context(), oneOperation, nil)
	require.NoError(t, err)
	_, err = c.Wait(t.Context(), sent)
	require.NoError(t, err)
	require.JSONEq(t, `{"id":"echo","result":["x",{"y":1}],"error":null}`, <-echoed)
}

// TestConnHangs: a call ends with its context if the server does not read, does not
// answer, or sends half of an answer.
func TestConnHangs(t *testing.T) {
	servers := map[string]func(net.Conn, *jsontext.Decoder){
		"does not read":   func(net.Conn, *jsontext.Decoder) {},
		"does not answer": func(_ net.Conn, requests *jsontext.Decoder) { _, _ = requests.ReadValue() },
		"sends half an answer": func(conn net.Conn, requests *jsontext.Decoder) {
			_, _ = requests.ReadValue()
			say(conn, `{"result":[{"rows":[{"name":"x"},`)
		},
	}
	for name, server := range servers {
		t.Run(name, func(t *testing.T) {
			hang := make(chan struct{})
			c := converse(t, func(conn net.Conn, requests *jsontext.Decoder) {
				server(conn, requests)
				<-hang
			})
			defer close(hang)
			large := []Operation{{json: []byte(`"` + strings.Repeat("x", 10<<20) + `"`)}}
			if name != "does not read" {
				large = oneOperation
			}
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			sent, err := c.Send(ctx, large, nil)
			if err == nil {
				_, err = c.Wait(ctx, sent)
			}
			require.ErrorIs(t, err, context.DeadlineExceeded)
			<-c.Ended()
			_, err = c.Send(t.Context(), oneOperation, nil)
			require.Error(t, err)
		})
	}
}

// TestConnWhileHeard: a long answer that comes in pieces is read to its end, and a silent server is left.
func TestConnWhileHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		socket, server := net.Pipe()
		c := newConn(socket, "OVN_Northbound")
		requests := jsontext.NewDecoder(server)
		ask := func(answer func()) error {
			ctx, cancel := c.WhileHeard(t.Context(), 10*time.Second)
			defer cancel()
			go func() {
				request(requests)
				answer()
			}()
			call, err := c.Send(ctx, nil, nil)
			require.NoError(t, err)
			_, err = c.Wait(ctx, call)
			return err
		}
		begun := time.Now()
		require.NoError(t, ask(func() {
			for piece := range strings.SplitSeq(`{"id":1, "result":[ ], "error":null }`, " ") {
				time.Sleep(9 * time.Second) //nolint:forbidigo // fake clock
				say(server, piece)
			}
		}))
		require.Equal(t, 45*time.Second, time.Since(begun))
		err := ask(func() {
			time.Sleep(9 * time.Second) //nolint:forbidigo // fake clock
			say(server, `{"id":2,`)
		})
		require.ErrorContains(t, err, "the server has sent nothing for 10s")
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

// TestConnRows: rows are shown while the answer arrives.
func TestConnRows(t *testing.T) {
	seen := make(chan string)
	c := converse(t, func(conn net.Conn, requests *jsontext.Decoder) {
		request(requests)
		say(conn, `{"result":[{},{"rows":[{"name":"a"}`)
		if <-seen == "a" {
			say(conn, `,{"name":"b"}]}],"error":null,"id":1}`)
		}
	})
	var all []string
	switches := testDatabase.Table(nb.LogicalSwitchTable)
	sent, err := c.Send(t.Context(), append(oneOperation, NewSelect(switches, nil)), &Visitor{Row: func(r Row) bool {
		all = append(all, r.Value.(*nb.LogicalSwitch).Name)
		if len(all) == 1 {
			seen <- all[0]
		}
		return false
	}})
	require.NoError(t, err)
	results, err := c.Wait(t.Context(), sent)
	require.NoError(t, err)
	require.Len(t, results, 2)
	require.Equal(t, []string{"a", "b"}, all)
}

// TestConnMonitor: a monitor is shown the rows of the first answer, then each change; the calls go on.
func TestConnMonitor(t *testing.T) {
	asked, changed := make(chan string, 1), make(chan string, 10)
	next := make(chan struct{})
	c := converse(t, func(conn net.Conn, requests *jsontext.Decoder) {
		asked <- request(requests)
		say(conn, `{"id":1,"result":{"Port":{"u1":{"new":{"up":true,"name":"a","more":[1]}},"u2":{"new":{"name":"b","up":["set",[]]}}}},"error":null}`)
		<-next
		say(conn, `{"id":null,"method":"update","params":[null,{"Port":{"u2":{"old":{"up":["set",[]]},"new":{"name":"b","up":true}}}}]}`)
		say(conn, `{"method":"update","id":null,"params":[null,{"Port":{"u1":{"new":{"name":"a","up":false},"old":{"up":true}},"u2":{"old":{"name":"b","up":true}}}}]}`)
		request(requests)
		say(conn, `{"id":2,"result":[{"count":1}],"error":null}`)
		say(conn, `{"id":null,"method":"update","params":[null,["not an object"]]}`)
	})
	show := func(uuid string, columns []jsontext.Value, gone bool) {
		text := uuid + string(columns[0]) + string(columns[1])
		if gone {
			text += " gone"
		}
		changed <- text
	}
	require.NoError(t, c.Follow(t.Context(), &Monitor{
		Table: "Port", Columns: []string{"name", "up"}, Row: show, Begun: func() { changed <- "begun" },
	}))
	require.JSONEq(t, `{"id":1,"method":"monitor","params":["OVN_Northbound",null,{"Port":{"columns":["name","up"]}}]}`, <-asked)
	close(next)
	sent, err := c.Send(t.Context(), oneOperation, nil)
	require.NoError(t, err)
	results, err := c.Wait(t.Context(), sent)
	require.NoError(t, err)
	require.Equal(t, []Result{{Count: 1}}, results)
	for _, want := range []string{`u1"a"true`, `u2"b"["set",[]]`, "begun", `u2"b"true`, `u1"a"false`, `u2"b"true gone`} {
		require.Equal(t, want, <-changed)
	}
	<-c.Ended()
	require.ErrorContains(t, c.Err(), "a monitor without an object of tables")
}

// TestConnMonitorRefused: a refusal is an error, and so is an answer of another form.
func TestConnMonitorRefused(t *testing.T) {
	for answer, want := range map[string]string{
		`{"id":1,"result":null,"error":{"error":"unknown column"}}`: "unknown column",
		`{"id":1,"result":{"Port":[]},"error":null}`:                "the connection has ended",
	} {
		c := converse(t, func(conn net.Conn, requests *jsontext.Decoder) {
			request(requests)
			say(conn, answer)
		})
		err := c.Follow(t.Context(), &Monitor{Table: "Port", Columns: []string{"name"}, Row: func(string, []jsontext.Value, bool) {}, Begun: func() {}})
		require.ErrorContains(t, err, want)
	}
}
