package egress

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"
)

// Question is what a node is asked.
type Question struct {
	Node netip.Addr
	Port uint16
	Key  []byte // authenticates the answer
	// Hangs is set after an answer with Hangs.
	Hangs bool
	// Count asks how many packets have come in by each port of the node.
	Count bool
}

// Answer is what a node answers.
type Answer struct {
	// Heard: the kernel of the node answers. Answered: its agent answers, and has proved that it is the node's.
	Heard, Answered bool
	// Hangs: the kernel has accepted a connection, and the agent has not answered.
	Hangs   bool
	Version string // of the part that is in force
	// Applied is the version of a part that is in force, except for the ports in Missing. An agent of an earlier version
	// reports none.
	Applied string
	Missing []string
	Unfit   []netip.Addr // addresses for which the node has no NIC
	// Received is how many packets have come in by a port since it was created, by its name. An agent of an earlier version does
	// not count.
	Received map[string]uint64
}

const (
	// askTimeout bounds a question. A node that needs longer is silent.
	askTimeout = 500 * time.Millisecond
	// dialTimeout bounds the connection, which the kernel of a node accepts or refuses.
	dialTimeout = askTimeout / 2
)

// maxAnswer bounds the bytes of an answer, which can name each port of each EgressIP twice.
const maxAnswer = 256 << 10

// Ask asks the agent of a node. If the agent hangs, its queue of connections can be full, and then the kernel drops further
// ones. Then Ask uses the next port, on which nothing listens. It does so for no other node: a firewall that refuses the port
// must not make a dead node look alive.
func Ask(ctx context.Context, q Question) (a Answer) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	conn, heard := dial(ctx, netip.AddrPortFrom(q.Node, q.Port))
	if conn == nil && !heard && q.Hangs {
		conn, heard = dial(ctx, netip.AddrPortFrom(q.Node, q.Port+1))
		if conn != nil {
			_ = conn.Close()
		}
		return Answer{Heard: heard, Hangs: heard}
	}
	if conn == nil {
		return Answer{Heard: heard}
	}
	defer func() { _ = conn.Close() }()
	answered, err := ask(ctx, conn, q)
	if err != nil {
		return Answer{Heard: true, Hangs: true}
	}
	return answered
}

// dial opens a connection, nil for none. heard reports whether the kernel of the node has accepted or refused it.
func dial(ctx context.Context, to netip.AddrPort) (conn net.Conn, heard bool) {
	conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "tcp", to.String())
	if err != nil {
		return nil, errors.Is(err, syscall.ECONNREFUSED)
	}
	return conn, true
}

// ask sends a request over a connection. The answer must be authentic and new.
func ask(ctx context.Context, conn net.Conn, q Question) (Answer, error) {
	client := http.Client{Transport: &http.Transport{
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return conn, nil },
		DisableKeepAlives: true, MaxResponseHeaderBytes: maxAnswer,
	}}
	nonce := rand.Text()
	url := "http://agent/?nonce=" + nonce
	if q.Count {
		url += "&count=" + hex.EncodeToString(sign(q.Key, []byte(nonce), []byte("count")))
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return Answer{}, err
	}
	response, err := client.Do(r)
	if err != nil {
		return Answer{}, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return Answer{}, err
	}
	if mac, err := hex.DecodeString(response.Header.Get("X-Coe-Mac")); err != nil || !hmac.Equal(mac, sign(q.Key, []byte(nonce), body)) {
		return Answer{}, errors.New("the answer is not authentic")
	}
	var content struct {
		Version  string            `json:"version"`
		Applied  string            `json:"applied"`
		Missing  []string          `json:"missing"`
		Unfit    []netip.Addr      `json:"unfit"`
		Received map[string]uint64 `json:"received"`
	}
	if err := json.Unmarshal(body, &content); err != nil {
		return Answer{}, fmt.Errorf("read the answer: %w", err)
	}
	return Answer{
		Heard: true, Answered: true, Version: content.Version, Applied: content.Applied, Missing: content.Missing, Unfit: content.Unfit,
		Received: content.Received,
	}, nil
}

// sign returns the HMAC of parts.
func sign(key []byte, parts ...[]byte) []byte {
	h := hmac.New(sha256.New, key)
	for _, part := range parts {
		h.Write(part)
	}
	return h.Sum(nil)
}
