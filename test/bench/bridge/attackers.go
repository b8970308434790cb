package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/coe-bridge/coe-bridge/test/lab/child"
	"github.com/coe-bridge/coe-bridge/test/lab/synth"
)

// attackOrder is the environment variable that has the order for a process of attackers.
const attackOrder = "COE_BENCH_ATTACK"

type order struct {
	URL          string
	Certificates string // folder
	Names        []string
}

// startAttackers starts a process that makes the named attacks until it is killed. The process has
// the lowest priority, because real attackers do not run on the bridge's machine.
func startAttackers(ctx context.Context, o order) (*child.Process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	text, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("encode the order for the attackers: %w", err)
	}
	cmd := exec.CommandContext(ctx, "nice", "-n", "19", program)
	cmd.Env = append(os.Environ(), attackOrder+"="+string(text))
	cmd.Stderr = os.Stderr
	return child.Start(cmd)
}

// serveAttack makes attacks until it is killed, if this process is a process of attackers.
func serveAttack(ctx context.Context) (served bool, err error) {
	text := os.Getenv(attackOrder)
	if text == "" {
		return false, nil
	}
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return true, fmt.Errorf("read %s: %w", attackOrder, err)
	}
	config, err := clientConfig(o.Certificates, 1)
	if err != nil {
		return true, err
	}
	n := newNodeClient(o.URL, config, capturedAddress, 1)
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM) // usually SIGKILL ends the process
	defer stop()
	var running sync.WaitGroup
	for _, a := range attacks {
		if slices.Contains(o.Names, a.name) {
			running.Go(func() { a.run(ctx, n) })
		}
	}
	running.Wait()
	return true, nil
}

// attack uses the credentials of a node until ctx is done. It ignores errors, because the bridge
// refuses most requests.
type attack struct {
	name string
	run  func(ctx context.Context, n *nodeClient)
}

var attacks = []attack{
	{"pods with the longest texts", postLongPods},
	{"pods made and deleted again and again", churnPods},
	{"streams", openStreams},
	{"bodies of 7 MB that do not end", slowBodies},
	{"logins with bad passwords", badLogins},
	{"connections that say nothing", silentConnections},
}

// each runs do repeatedly in many goroutines until ctx is done.
func each(ctx context.Context, do func(i int)) {
	var all sync.WaitGroup
	for i := range attackers {
		all.Go(func() {
			for ctx.Err() == nil {
				do(i)
			}
		})
	}
	all.Wait()
}

const podsOfNodes = "/restconf/config/pod:coe"

func longPod(node, i int) string {
	long := strings.Repeat("x", longLeaf)
	return fmt.Sprintf(`{"pods":[{"uid":%q,"name":"p%d","version":%q,"network-NS":"n%d","host-ip-address":%q,"interface":[{"uid":%q}]}]}`,
		fmt.Sprintf("9f2a6d5e-0000-4000-8000-%012d", i), i, long, i, synth.NodeAddress(node), fmt.Sprintf("9f2a6d5e-0000-4000-8001-%012d", i))
}

func postLongPods(ctx context.Context, n *nodeClient) {
	for i := range 2 * agentLimit {
		n.do(ctx, http.MethodPost, podsOfNodes, strings.NewReader(longPod(n.number, i)))
	}
	<-ctx.Done()
}

func churnPods(ctx context.Context, n *nodeClient) {
	each(ctx, func(i int) {
		n.do(ctx, http.MethodPost, podsOfNodes, strings.NewReader(longPod(n.number, 1000+i)))
		n.do(ctx, http.MethodDelete, podsOfNodes+fmt.Sprintf("/pods/9f2a6d5e-0000-4000-8000-%012d", 1000+i), http.NoBody)
	})
}

func openStreams(ctx context.Context, n *nodeClient) {
	each(ctx, func(int) {
		if lines, end, err := n.stream(ctx); err == nil {
			for lines.Scan() {
			}
			end()
		}
	})
}

// slow is a body of unknown length that does not end.
type slow struct {
	io.Reader
	ctx context.Context //nolint:containedctx // Read has no context
}

func (s slow) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if err == io.EOF {
		<-s.ctx.Done()
	}
	return n, err
}

func slowBodies(ctx context.Context, n *nodeClient) {
	text := bytes.Repeat([]byte("x"), longBody)
	each(ctx, func(int) {
		n.do(ctx, http.MethodPost, podsOfNodes, slow{io.MultiReader(strings.NewReader(`{"pods":[{"name":"`), bytes.NewReader(text)), ctx})
	})
}

func badLogins(ctx context.Context, n *nodeClient) {
	config := n.config.Clone()
	config.Certificates = nil
	bad := newNodeClient(n.url, config, capturedAddress, n.number)
	defer bad.http.CloseIdleConnections()
	each(ctx, func(i int) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, bad.url+podsOfNodes, http.NoBody)
		if err != nil {
			return
		}
		r.SetBasicAuth(fmt.Sprint("user", i), "bad")
		if answer, err := bad.http.Do(r); err == nil {
			_, _ = io.Copy(io.Discard, answer.Body)
			_ = answer.Body.Close()
		}
	})
}

func silentConnections(ctx context.Context, n *nodeClient) {
	address := strings.TrimPrefix(n.url, "https://")
	var open []net.Conn
	defer func() {
		for _, c := range open {
			_ = c.Close()
		}
	}()
	for range 4096 {
		if ctx.Err() != nil {
			return
		}
		if c, err := n.dialer.DialContext(ctx, "tcp", address); err == nil {
			open = append(open, c)
		}
	}
	<-ctx.Done()
}
