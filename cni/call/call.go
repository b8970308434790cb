// Package call carries the calls of a CNI plugin to the agent of its node, and the
// answers back: one JSON object each way over a unix socket, a connection for each
// call. It knows what a call is made of, and not what is done about it.
package call

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
)

// DefaultSocket is where the agent listens.
const DefaultSocket = "/run/coe-bridge/cni.sock"

// SocketsSuffix is added to the path of the plugin to name its sockets file: the unix
// sockets, one a line, that network configurations may name beside DefaultSocket.
//
// Every user who may create a NetworkAttachmentDefinition writes network configurations,
// and the plugin runs as root. So root's file decides where the plugin connects.
const SocketsSuffix = ".sockets"

// maxAnswer bounds an answer in bytes.
const maxAnswer = 1 << 20

// The commands of CNI.
const (
	Add    = "ADD"
	Check  = "CHECK"
	Del    = "DEL"
	GC     = "GC"
	Status = "STATUS"
)

// Request is a call as the container runtime makes it.
type Request struct {
	Command     string          `json:"command"`
	ContainerID string          `json:"containerId,omitempty"`
	Netns       string          `json:"netns,omitempty"`
	IfName      string          `json:"ifName,omitempty"`
	Args        string          `json:"args,omitempty"`
	Config      json.RawMessage `json:"config"`
}

// Answer is what is to be told the runtime. Result is that of Add.
type Answer struct {
	Result *current.Result `json:"result,omitempty"`
	Error  *types.Error    `json:"error,omitempty"`
}

// ErrNoAgent says that nobody listens on the socket.
var ErrNoAgent = errors.New("the node's agent is not there")

// Do makes a call to the agent at a socket, which must be a process of root. That ctx ends before the answer tells the
// agent to undo what it has begun.
func Do(ctx context.Context, socket string, r Request) (Answer, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		return Answer{}, fmt.Errorf("%w: %w; does coe-bridge agent run on this node?", ErrNoAgent, err)
	}
	defer func() { _ = conn.Close() }()
	if err := verifyPeer(conn); err != nil {
		return Answer{}, fmt.Errorf("refuse socket %s: %w", socket, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if err := json.NewEncoder(conn).Encode(r); err != nil {
		return Answer{}, fmt.Errorf("ask the node's agent: %w", errors.Join(ctx.Err(), err))
	}
	var answer Answer
	if err := json.NewDecoder(io.LimitReader(conn, maxAnswer)).Decode(&answer); err != nil {
		return Answer{}, fmt.Errorf("wait for the node's agent: %w", errors.Join(ctx.Err(), err))
	}
	return answer, nil
}
