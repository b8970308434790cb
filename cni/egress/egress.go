// Package egress answers the bridge's questions whether the node lives, which part in egress addresses is in force on it,
// and how many packets have come in to leave by each port. A secret of the bridge and the node authenticates the answers. The
// package knows neither the stream of the node nor how packets leave.
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
	// Links are the links by which packets of the node's ports come in, by the name of the port.
	Links map[string]string `json:"-"`
}

// answered is the body of an answer.
type answered struct {
	State
	// Received is how many packets have come in for each port, by its name, if the question asks for that. Ports whose links
	// cannot be read are missing.
	Received map[string]uint64 `json:"received,omitempty"`
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

// answer answers a question, which has a nonce. The header X-Coe-Mac is the HMAC of the nonce and the body. The node counts
// packets only for the bridge, which proves itself by the parameter count: the HMAC of the nonce and "count". No answer has it,
// because a body ends in a brace.
func (s *Server) answer(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	key, content := s.key, answered{State: s.state}
	s.mu.Unlock()
	query := r.URL.Query()
	nonce := []byte(query.Get("nonce"))
	if hmac.Equal([]byte(query.Get("count")), []byte(sign(key, nonce, []byte("count")))) {
		content.Received = s.received(content.Links)
	}
	body, err := json.Marshal(content)
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Coe-Mac", sign(key, nonce, body))
	_, _ = w.Write(body) // the client is gone
}

// sign returns the HMAC of parts, in hexadecimal digits.
func sign(key []byte, parts ...[]byte) string {
	h := hmac.New(sha256.New, key)
	for _, part := range parts {
		h.Write(part)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// received returns how many packets have come in by links, by the names of their ports. It is empty if the links cannot be
// read: then the bridge waits as for an agent that does not count.
func (s *Server) received(of map[string]string) map[string]uint64 {
	counts, err := links.Received(s.netns)
	if err != nil {
		return nil
	}
	received := map[string]uint64{}
	for port, link := range of {
		if packets, found := counts[link]; found {
			received[port] = packets
		}
	}
	return received
}
