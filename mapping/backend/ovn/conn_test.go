package ovn

import (
	"bufio"
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
)

// converse connects to a server that behaves as it is told, with one connection.
func converse(t *testing.T, server func(conn net.Conn, requests *jsontext.Decoder)) *conn {
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
	c, err := openConn(t.Context(), "unix:"+path, nil)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, listener.Close())
		_ = c.Close() // may have ended
		<-c.ended
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

var oneOperation = [][]byte{[]byte(`{"op":"comment"}`)}

func TestConnAnswers(t *testing.T) {
	cases := map[string]struct {
		answer  string
		results []result
		err     string
	}{
		"results": {
			`{"id":1,"error":null,"result":[{},{"count":3},{"uuid":["uuid","x"]},null,{"error":"e","details":"d\"e"}]}`,
			[]result{{}, {count: 3}, {}, {}, {reason: "e", detail: `d"e`}}, "",
		},
		"id after the result":  {`{"result":[{}],"error":null,"id":1}`, []result{{}}, ""},
		"rows that nobody has": {`{"result":[{"rows":[{"a":["set",[]]}]}],"error":null,"id":1}`, []result{{}}, ""},
		"notification first":   {`{"method":"update","params":[1,{}],"id":null}{"result":[],"error":null,"id":1}`, nil, ""},
		"error":                {`{"result":null,"error":{"error":"unknown database"},"id":1}`, nil, "unknown database"},
		"another's answer":     {`{"result":[],"error":null,"id":2}`, nil, "which was not the next"},
		"answer to nothing":    {`{"result":[],"error":null,"id":1}{"result":[],"error":null,"id":2}`, nil, ""},
		"no answer":            {`{"error":null,"id":1}`, nil, "which was not the next"},
		"no JSON":              {`hello`, nil, "the connection has ended"},
		"an array":             {`[]`, nil, "the connection has ended"},
		"count that is none":   {`{"result":[{"count":"x"}],"error":null,"id":1}`, nil, "the connection has ended"},
		"truncated":            {`{"result":[{"rows":[{"na`, nil, "the connection has ended"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			conn := converse(t, func(conn net.Conn, requests *jsontext.Decoder) {
				request(requests)
				say(conn, c.answer)
			})
			sent, err := conn.send(t.Context(), oneOperation, nil)
			require.NoError(t, err)
			results, err := conn.wait(t.Context(), sent)
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.results, results)
		})
	}
}

// TestConnOrder: requests are sent before those ahead are answered, and each
// answer comes to its own.
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
	var sent []*call
	for range 3 {
		one, err := c.send(t.Context(), append(oneOperation, []byte(`{"op":"abort"}`)), nil)
		require.NoError(t, err)
		sent = append(sent, one)
	}
	for i := range 3 {
		results, err := c.wait(t.Context(), sent[i])
		require.NoError(t, err)
		require.Equal(t, []result{{count: int64(i + 1)}}, results)
	}
	require.JSONEq(t, `{"id":1,"method":"transact","params":["OVN_Northbound",{"op":"comment"},{"op":"abort"}]}`, <-asked)
}

// TestConnEcho: the server's question for a sign of life is answered, also while
// an answer is awaited.
func TestConnEcho(t *testing.T) {
	echoed := make(chan string, 1)
	c := converse(t, func(conn net.Conn, requests *jsontext.Decoder) {
		request(requests)
		say(conn, `{"method":"echo","params":["x",{"y":1}],"id":"echo"}`)
		echoed <- request(requests)
		say(conn, `{"result":[],"error":null,"id":1}`)
	})
	sent, err := c.send(t.Context(), oneOperation, nil)
	require.NoError(t, err)
	_, err = c.wait(t.Context(), sent)
	require.NoError(t, err)
	require.JSONEq(t, `{"id":"echo","result":["x",{"y":1}],"error":null}`, <-echoed)
}

// TestConnHangs: a call ends with its context when the server takes nothing, or
// answers nothing or half.
func TestConnHangs(t *testing.T) {
	servers := map[string]func(net.Conn, *jsontext.Decoder){
		"takes nothing":   func(net.Conn, *jsontext.Decoder) {},
		"answers nothing": func(_ net.Conn, requests *jsontext.Decoder) { _, _ = requests.ReadValue() },
		"answers half": func(conn net.Conn, requests *jsontext.Decoder) {
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
			large := [][]byte{[]byte(`"` + strings.Repeat("x", 10<<20) + `"`)}
			if name != "takes nothing" {
				large = oneOperation
			}
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			sent, err := c.send(ctx, large, nil)
			if err == nil {
				_, err = c.wait(ctx, sent)
			}
			require.ErrorIs(t, err, context.DeadlineExceeded)
			<-c.ended
			_, err = c.send(t.Context(), oneOperation, nil)
			require.Error(t, err)
		})
	}
}

// TestConnRows: rows are read while they come, and an error of who reads them ends
// the connection.
func TestConnRows(t *testing.T) {
	seen := make(chan string)
	c := converse(t, func(conn net.Conn, requests *jsontext.Decoder) {
		request(requests)
		say(conn, `{"result":[{},{"rows":["a"`)
		if <-seen == `"a"` {
			say(conn, `,"b"]}],"error":null,"id":1}`)
		}
	})
	var all []string
	sent, err := c.send(t.Context(), oneOperation, func(in *jsontext.Decoder) error {
		return array(in, func() error {
			v, err := in.ReadValue()
			all = append(all, string(v))
			if len(all) == 1 {
				seen <- string(v)
			}
			return err
		})
	})
	require.NoError(t, err)
	results, err := c.wait(t.Context(), sent)
	require.NoError(t, err)
	require.Len(t, results, 2)
	require.Equal(t, []string{`"a"`, `"b"`}, all)
}
