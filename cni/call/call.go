// Package call carries CNI calls from the plugin to the agent of its node, and the answers
// back. It sends one JSON object each way over a unix socket, and opens a connection per
// call. It does not know what the calls do.
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

// DefaultSocket is the default path of the agent's socket.
const DefaultSocket = "/run/coe-bridge/cni.sock"

// SocketsSuffix is appended to the path of the plugin to name its sockets file. The file
// lists the unix sockets, one per line, that network configurations may name besides
// DefaultSocket.
//
// The plugin runs as root, and every user who may create a NetworkAttachmentDefinition
// writes network configurations. So a file of root decides where the plugin connects.
const SocketsSuffix = ".sockets"

// maxAnswer is the maximum size of an answer in bytes.
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

// Answer is the answer to a call. Only ADD has a Result.
type Answer struct {
	Result *current.Result `json:"result,omitempty"`
	Error  *types.Error    `json:"error,omitempty"`
}

// ErrNoAgent is returned if no process listens on the socket.
var ErrNoAgent = errors.New("the node's agent is not running")

// Do sends a call to the agent and waits for its answer. The agent must run as root. If
// ctx ends before the answer, the agent undoes the call.
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
