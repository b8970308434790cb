package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coe-bridge/coe-bridge/test/figures"
	"github.com/coe-bridge/coe-bridge/test/serve"
	"github.com/coe-bridge/coe-bridge/test/synth"
)

const (
	capturedBound   = 100 * megabyte // what one node's credentials may cost
	reconnects      = 20
	reconnectBound  = time.Second
	streamRetry     = 10 * time.Millisecond
	nodeEvents      = 300
	nodeEventsEvery = 20 * time.Millisecond
	floodFactor     = 2.0 // of the p99 when it is quiet
	// attackers are the connections of the captured node, of each kind.
	attackers  = 32
	longBody   = 7 << 20
	longLeaf   = 253
	agentLimit = 110
	// capturedAddress is where the captured node's connections come from.
	capturedAddress = "127.0.0.2"
)

// attack uses the credentials of a node until ctx is done. Errors are ignored: the bridge
// refuses most of it.
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

// measureCaptured measures what one node's credentials can cost the others: what each
// attack leaves in memory, and how another node's agent is served while all go on.
func measureCaptured(ctx context.Context, b *bench) (all []figures.Figure, err error) {
	b.say("building the bridge")
	program, err := serve.Build(ctx, b.dir)
	if err != nil {
		return nil, err
	}
	certificates, err := b.newCertificates()
	if err != nil {
		return nil, err
	}
	idle, err := b.underAttack(ctx, program, certificates, attack{run: func(context.Context, *nodeClient) {}})
	if err != nil {
		return nil, err
	}
	cost := make([]float64, len(attacks))
	for i, a := range attacks {
		resident, err := b.underAttack(ctx, program, certificates, a)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", a.name, err)
		}
		b.say("%s: %.0f MB resident", a.name, resident/megabyte)
		cost[i] = resident
	}
	for i, a := range attacks {
		all = append(all, figures.Figure{
			Name:     "one node's credentials: " + a.name,
			Measured: fmt.Sprintf("%.0f MB above idle", (cost[i]-idle)/megabyte),
			Bound:    fmt.Sprintf("at most %.0f MB", capturedBound/megabyte), Within: cost[i]-idle <= capturedBound,
		})
	}
	flood, err := b.measureFlood(ctx, program, certificates)
	return append(all, flood...), err
}

// underAttack returns the resident memory of a bridge during an attack.
func (b *bench) underAttack(ctx context.Context, program string, certificates certificates, a attack) (resident float64, err error) {
	bed, err := b.newNodesBed(ctx, program, certificates)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, bed.stop()) }()
	end := bed.attack(ctx, a)
	defer end()
	resident, _, err = bed.bridge.Settled(ctx)
	return resident, err
}

// measureFlood has the agent of a node follow its stream, by turns while it is quiet and
// while another node's credentials make all attacks at once.
func (b *bench) measureFlood(ctx context.Context, program string, certificates certificates) (all []figures.Figure, err error) {
	bed, err := b.newNodesBed(ctx, program, certificates)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, bed.stop()) }()
	var quiet, flood, again []time.Duration
	pods := 0
	events := func(to *[]time.Duration) error {
		took, err := bed.events(ctx, pods)
		pods += nodeEvents
		*to = append(*to, took...)
		return err
	}
	for range 2 { // by turns
		if err := events(&quiet); err != nil {
			return nil, err
		}
		end := bed.attack(ctx, attacks...)
		err := events(&flood)
		for i := 0; i < reconnects && err == nil; i++ {
			var took time.Duration
			took, err = bed.reconnect(ctx)
			again = append(again, took)
		}
		end()
		if err != nil {
			return nil, err
		}
	}
	for _, took := range [][]time.Duration{quiet, flood, again} {
		slices.Sort(took)
	}
	ratio := float64(figures.Percentile(flood, 99)) / float64(figures.Percentile(quiet, 99))
	return []figures.Figure{
		figures.AtMost("another node's agent connects again during a flood, longest", again[len(again)-1], reconnectBound),
		{
			Name:     "PUT of a pod begun, to its node's agent, p99 during a flood",
			Measured: fmt.Sprintf("%.2f times the quiet one (%s, quiet %s)", ratio, figures.Short(figures.Percentile(flood, 99)), figures.Short(figures.Percentile(quiet, 99))),
			Bound:    fmt.Sprintf("at most %g", floodFactor), Within: ratio <= floodFactor,
		},
	}, nil
}

// nodesBed is a bridge that knows two nodes: the first is honest, the second captured.
type nodesBed struct {
	bridge *serve.Process
	admin  *nodeClient
	nodes  [2]*nodeClient
}

func (b *bench) newNodesBed(ctx context.Context, program string, certificates certificates) (bed *nodesBed, err error) {
	dir, err := b.folder("captured")
	if err != nil {
		return nil, err
	}
	bed = &nodesBed{}
	args := append([]string{"--auth-file", b.usersFile, "--data-dir", dir}, certificates.flags...)
	if bed.bridge, err = serve.StartQuietly(ctx, program, args...); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, bed.bridge.Stop())
		}
	}()
	bed.admin = newNodeClient(bed.bridge.URL, certificates.client(), nil, "127.0.0.1", -1)
	for i := range bed.nodes {
		bed.nodes[i] = newNodeClient(bed.bridge.URL, certificates.client(), certificates.nodes[i:i+1], []string{"127.0.0.1", capturedAddress}[i], i)
	}
	cluster := synth.Cluster{Nodes: len(bed.nodes), Namespaces: 1}
	if err := bed.admin.must(ctx, http.MethodPut, synth.PoolsPath, `{"dhcp_allocation_pool":`+cluster.Pools()+`}`); err != nil {
		return nil, err
	}
	if err := bed.admin.must(ctx, http.MethodPost, synth.NodesPath, cluster.NodesBody()); err != nil {
		return nil, err
	}
	_, err = bed.reconnect(ctx) // the bridge knows its nodes then
	return bed, err
}

func (bed *nodesBed) stop() error {
	bed.admin.http.CloseIdleConnections()
	for _, n := range bed.nodes {
		n.http.CloseIdleConnections()
	}
	return bed.bridge.Stop()
}

// attack begins attacks; end ends them.
func (bed *nodesBed) attack(ctx context.Context, all ...attack) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	for _, a := range all {
		running.Go(func() { a.run(ctx, bed.nodes[1]) })
	}
	<-time.After(time.Second) // attacks take a while to be under way
	return func() {
		cancel()
		running.Wait()
	}
}

// reconnect is how long it takes until the honest agent's stream tells the first event.
// A bridge that does not know the node yet refuses it.
func (bed *nodesBed) reconnect(ctx context.Context) (took time.Duration, err error) {
	begun := time.Now()
	for deadline := begun.Add(streamTimeout); time.Now().Before(deadline); <-time.After(streamRetry) {
		var lines *bufio.Scanner
		var end func()
		if lines, end, err = bed.nodes[0].stream(ctx); err != nil {
			continue
		}
		found := lines.Scan()
		end()
		if found {
			return time.Since(begun), nil
		}
	}
	return 0, fmt.Errorf("the agent has no stream: %w", err)
}

// events has a writer make pods on the honest node. It returns how
// long each took from the begin of its PUT until the node's agent was told.
func (bed *nodesBed) events(ctx context.Context, from int) (took []time.Duration, err error) {
	lines, end, err := bed.nodes[0].stream(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	var mu sync.Mutex
	begun := map[string]time.Time{}
	all := make(chan struct{})
	go func() {
		defer close(all)
		for lines.Scan() {
			now := time.Now()
			_, after, found := bytes.Cut(lines.Bytes(), []byte(`"pod-uid":"`))
			uid, _, _ := bytes.Cut(after, []byte(`"`))
			mu.Lock()
			if at, waits := begun[string(uid)]; found && waits {
				delete(begun, string(uid))
				if took = append(took, now.Sub(at)); len(took) == nodeEvents {
					mu.Unlock()
					break
				}
			}
			mu.Unlock()
		}
	}()
	tick := time.NewTicker(nodeEventsEvery)
	defer tick.Stop()
	cluster := synth.Cluster{Nodes: 1, Namespaces: 1}
	for i := from; i < from+nodeEvents; i++ {
		mu.Lock()
		begun[synth.PodUID(i)] = time.Now()
		mu.Unlock()
		if err := bed.admin.must(ctx, http.MethodPut, cluster.PodPath(i), cluster.PodsBody(i, i+1)); err != nil {
			return nil, err
		}
		<-tick.C
	}
	select {
	case <-all:
	case <-time.After(streamTimeout):
		end()
		<-all
	}
	if len(took) != nodeEvents {
		return nil, fmt.Errorf("%d of %d pods were told", len(took), nodeEvents)
	}
	return took, nil
}

// nodeClient speaks with the credentials of a node, or as the writer.
type nodeClient struct {
	url    string
	number int // of the node; -1 for the writer
	config *tls.Config
	dialer *net.Dialer
	http   *http.Client
}

func newNodeClient(url string, trusted *tls.Config, certificates []tls.Certificate, from string, number int) *nodeClient {
	n := &nodeClient{url: url, number: number, config: trusted, dialer: &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}}
	n.config.Certificates = certificates
	n.http = &http.Client{Transport: &http.Transport{TLSClientConfig: n.config, DialContext: n.dialer.DialContext, MaxIdleConnsPerHost: attackers}}
	return n
}

func (n *nodeClient) open(ctx context.Context, method, path string, body io.Reader) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, n.url+path, body)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	if n.number < 0 {
		r.SetBasicAuth(user, password)
	}
	return n.http.Do(r)
}

// do makes a request whose answer does not matter.
func (n *nodeClient) do(ctx context.Context, method, path string, body io.Reader) {
	if answer, err := n.open(ctx, method, path, body); err == nil {
		_, _ = io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
	}
}

// must makes a request below the config tree that has to succeed.
func (n *nodeClient) must(ctx context.Context, method, path, body string) error {
	answer, err := n.open(ctx, method, "/restconf/config/"+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	if text, _ := io.ReadAll(answer.Body); answer.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s: %s: %s", method, path, answer.Status, text)
	}
	return nil
}

// stream opens the stream of the node.
func (n *nodeClient) stream(ctx context.Context) (lines *bufio.Scanner, end func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	answer, err := n.open(ctx, http.MethodGet, "/rests/streams/node-interfaces="+synth.NodeAddress(n.number).String(), http.NoBody)
	if err != nil {
		cancel()
		return nil, nil, err
	}
	end = func() {
		cancel()
		_ = answer.Body.Close()
	}
	if answer.StatusCode != http.StatusOK {
		end()
		return nil, nil, fmt.Errorf("stream of node %d: %s", n.number, answer.Status)
	}
	lines = bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 1<<20)
	return lines, end, nil
}

// each has many do something again and again until ctx is done.
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
	ctx context.Context //nolint:containedctx // a Reader is given none
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
	bad := newNodeClient(n.url, n.config.Clone(), nil, capturedAddress, n.number)
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
