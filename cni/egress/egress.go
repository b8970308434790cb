// Package egress answers the bridge's questions whether the node lives, and which part in egress addresses is in force
// on it. A secret of the bridge and the node authenticates the answers. The package knows neither the stream of the
// node nor how packets leave.
package egress

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/vishvananda/netns"

	"github.com/coe-bridge/coe-bridge/cni/healthchecks"
	"github.com/coe-bridge/coe-bridge/cni/links"
)

// State is what the node answers.
type State struct {
	Version string `json:"version"` // of the part that is in force
	// Applied is the version of the last part that is in force, except for the ports in Missing.
	Applied string       `json:"applied,omitempty"`
	Missing []string     `json:"missing,omitempty"`
	Unfit   []netip.Addr `json:"unfit,omitempty"` // addresses for which the node has no NIC
}

const (
	// timeout bounds each connection: the bridge needs some milliseconds.
	timeout = 2 * time.Second
	// maxHeader bounds the bytes of a request.
	maxHeader = 4 << 10
)

// Server answers questions. Sync and Close must not be called at once.
type Server struct {
	netns     netns.NsHandle
	at        netip.AddrPort
	server    *http.Server // nil if it does not listen
	serving   sync.WaitGroup
	connected healthchecks.Connections

	mu    sync.Mutex
	key   []byte
	state State
}

// New returns a Server in a network namespace, which does not answer yet.
func New(ns netns.NsHandle) *Server { return &Server{netns: ns} }

// Sync makes the node answer at an address; the zero value answers nowhere.
func (s *Server) Sync(at netip.AddrPort, key []byte, state State) error {
	s.mu.Lock()
	s.key, s.state = key, state
	s.mu.Unlock()
	if at == s.at {
		return nil
	}
	if s.server != nil {
		_ = s.server.Close() // of a listener
		s.server = nil
	}
	s.at = netip.AddrPort{}
	if !at.IsValid() {
		return nil
	}
	var listener net.Listener
	err := links.Inside(s.netns, func() (err error) {
		listener, err = new(net.ListenConfig).Listen(context.Background(), "tcp", at.String())
		return err
	})
	if err != nil {
		return fmt.Errorf("answer the bridge about egress addresses: %w", err)
	}
	server := &http.Server{
		Handler: http.HandlerFunc(s.answer), ReadTimeout: timeout, WriteTimeout: timeout, MaxHeaderBytes: maxHeader,
		ConnState: s.connected.Note(at.Port()),
		ErrorLog:  slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), // it is about clients
	}
	server.SetKeepAlivesEnabled(false)
	s.server, s.at = server, at
	s.serving.Go(func() { _ = server.Serve(listener) }) // it ends with Close
	return nil
}

// Close ends the answers.
func (s *Server) Close() {
	_ = s.Sync(netip.AddrPort{}, nil, State{}) // only listening fails
	s.serving.Wait()
}

// answer answers a question, which has a nonce. The header X-Coe-Mac is the HMAC of the nonce and the body.
func (s *Server) answer(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	key, state := s.key, s.state
	s.mu.Unlock()
	body, err := json.Marshal(state)
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	h := hmac.New(sha256.New, key)
	h.Write([]byte(r.URL.Query().Get("nonce")))
	h.Write(body)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Coe-Mac", hex.EncodeToString(h.Sum(nil)))
	_, _ = w.Write(body) // the client is gone
}
