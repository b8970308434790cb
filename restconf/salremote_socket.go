package restconf

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

// pongTimeout is how long a client of a websocket may be silent. One that does not read
// does not answer either.
const pongTimeout = time.Minute

// isUpgrade tells whether r wants to become a websocket.
func isUpgrade(r *http.Request) bool { return strings.EqualFold(r.Header.Get("Upgrade"), "websocket") }

// socket sends messages over a websocket. What the client sends means nothing.
type socket struct {
	*dataSink
	ctx  context.Context //nolint:containedctx // it ends with the connection, which this is
	conn *websocket.Conn
}

// comment implements sink: pings go by themselves.
func (s socket) comment() error { return s.ctx.Err() }

func (s socket) events(group []stream.Event) error {
	messages, err := s.messages(group)
	if err != nil {
		return err
	}
	for _, message := range messages {
		if err := s.send(message); err != nil {
			return err
		}
	}
	return nil
}

func (s socket) send(message []byte) error {
	ctx, cancel := context.WithTimeout(s.ctx, writeTimeout)
	defer cancel()
	return s.conn.Write(ctx, websocket.MessageText, message)
}

// followBySocket tells a client of a websocket what happens, until one side ends.
// Browsers may come from this server's own pages alone.
func (s *Server) followBySocket(w http.ResponseWriter, r *http.Request, sub stream.Subscription, data *dataSink, ending <-chan struct{}) {
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		s.log.Debug("a websocket was not opened", "path", r.URL.Path, "err", err)
		return // it is answered
	}
	ctx, cancel := context.WithCancel(r.Context())
	var beside sync.WaitGroup
	beside.Go(func() { defer cancel(); drain(ctx, conn) })
	beside.Go(func() { defer cancel(); ping(ctx, conn) })
	s.passData(r.WithContext(ctx), sub, socket{data, ctx, conn}, ending)
	_ = conn.Close(closeStatus(ending)) // the client may be gone
	cancel()
	beside.Wait()
}

// closeStatus tells the client why no more comes.
func closeStatus(ending <-chan struct{}) (websocket.StatusCode, string) {
	select {
	case <-ending:
		return websocket.StatusGoingAway, "the server ends"
	default:
		return websocket.StatusNormalClosure, ""
	}
}

// drain reads what the client sends, for what the protocol answers by itself.
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

// ping asks again and again whether the client is there, and returns when it is not.
func ping(ctx context.Context, conn *websocket.Conn) {
	beat := time.NewTicker(beatEvery)
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
