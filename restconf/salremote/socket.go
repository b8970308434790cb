package salremote

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/coe-bridge/coe-bridge/restconf/stream"
)

// pongTimeout is how long a client of a websocket may be silent. A client that does not
// read does not answer either.
const pongTimeout = time.Minute

// isUpgrade reports whether r wants to become a websocket.
func isUpgrade(r *http.Request) bool { return strings.EqualFold(r.Header.Get("Upgrade"), "websocket") }

// socket sends messages over a websocket. Messages of the client are ignored.
type socket struct {
	ctx  context.Context //nolint:containedctx // it ends with the connection, which this is
	conn *websocket.Conn
}

// Comment implements connection: ping sends pings.
func (s socket) Comment() error { return s.ctx.Err() }

// Send implements connection.
func (s socket) Send(message []byte) error {
	ctx, cancel := context.WithTimeout(s.ctx, stream.WriteTimeout)
	defer cancel()
	return s.conn.Write(ctx, websocket.MessageText, message)
}

// follow sends events over a websocket until one side ends. It accepts browsers from
// this server's own pages only.
func (s *Server) follow(ctx context.Context, w http.ResponseWriter, r *http.Request, sub stream.Subscription, data *dataSink, c stream.Caller) error {
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		s.log.Debug("a websocket was not opened", "path", r.URL.Path, "err", err)
		return nil // the request is answered
	}
	ctx, cancel := context.WithCancel(ctx)
	var beside sync.WaitGroup
	beside.Go(func() { defer cancel(); drain(ctx, conn) })
	beside.Go(func() { defer cancel(); ping(ctx, conn) })
	data.connection = socket{ctx, conn}
	err = stream.Pass(ctx, sub, data, c)
	status, why := websocket.StatusNormalClosure, ""
	select {
	case <-c.Ending():
		status, why = websocket.StatusGoingAway, "the server ends"
	default:
	}
	_ = conn.Close(status, why) // the client may have disconnected
	cancel()
	beside.Wait()
	return err
}

// drain reads messages of the client, so that control frames are answered.
func drain(ctx context.Context, conn *websocket.Conn) {
	for {
		_, message, err := conn.Reader(ctx)
		if err != nil {
			return
		}
		if _, err := io.Copy(io.Discard, message); err != nil {
			return
		}
	}
}

// ping pings the client repeatedly, and returns when it does not answer.
func ping(ctx context.Context, conn *websocket.Conn) {
	beat := time.NewTicker(stream.Beat)
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-beat.C:
		}
		bounded, done := context.WithTimeout(ctx, pongTimeout)
		err := conn.Ping(bounded)
		done()
		if err != nil {
			return
		}
	}
}
