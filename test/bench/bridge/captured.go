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

	"github.com/coe-bridge/coe-bridge/test/bench/figures"
	"github.com/coe-bridge/coe-bridge/test/lab/serve"
	"github.com/coe-bridge/coe-bridge/test/lab/synth"
)

const (
	capturedBound   = 100 * megabyte // of the memory that one node's credentials can cost
	reconnects      = 20
	reconnectBound  = time.Second
	streamRetry     = 10 * time.Millisecond
	nodeEvents      = 300
	nodeEventsEvery = 20 * time.Millisecond
	floodFactor     = 2.0 // of the quiet p99
	// attackers is the number of connections of the captured node, for each attack.
	attackers  = 32
	longBody   = 7 << 20
	longLeaf   = 253
	agentLimit = 110
	// capturedAddress is the source address of the captured node's connections.
	capturedAddress = "127.0.0.2"
)

// measureCaptured measures the damage that one node's credentials can do: the memory of the bridge
// during each attack, and the service for the agent of another node during all attacks.
func measureCaptured(ctx context.Context, b *bench) (all []figures.Figure, err error) {
	b.Say("building the bridge")
	program, err := serve.Build(ctx, b.Dir)
	if err != nil {
		return nil, err
	}
	certificates, err := b.newCertificates()
	if err != nil {
		return nil, err
	}
	idle, err := b.underAttack(ctx, program, certificates, attack{})
	if err != nil {
		return nil, err
	}
	cost := make([]float64, len(attacks))
	for i, a := range attacks {
		resident, err := b.underAttack(ctx, program, certificates, a)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", a.name, err)
		}
		b.Say("%s: %.0f MB resident", a.name, resident/megabyte)
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
	end, err := bed.attack(ctx, a.name)
	if err != nil {
		return 0, err
	}
	defer end()
	resident, _, err = bed.bridge.Settled(ctx)
	return resident, err
}

// measureFlood measures the stream of a node's agent, alternately while the bridge is quiet and
// while attackers make all attacks with the credentials of another node.
func (b *bench) measureFlood(ctx context.Context, program string, certificates certificates) (all []figures.Figure, err error) {
	bed, err := b.newNodesBed(ctx, program, certificates)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, bed.stop()) }()
	var quiet, flood, again []time.Duration
	for range 3 {
		if err := bed.events(ctx, &quiet); err != nil {
			return nil, err
		}
		if err := bed.flood(ctx, &flood, &again); err != nil {
			return nil, err
		}
	}
	slices.Sort(again)
	p99 := func(took []time.Duration) time.Duration {
		slices.Sort(took)
		return figures.Percentile(took, 99)
	}
	ratio := float64(p99(flood)) / float64(p99(quiet))
	return []figures.Figure{
		figures.AtMost("another node's agent connects again during a flood, longest", again[len(again)-1], reconnectBound),
		{
			Name:     "PUT of a pod begun, to its node's agent, p99 during a flood",
			Measured: fmt.Sprintf("%.2f of the quiet p99 (%s, %s)", ratio, figures.Short(p99(flood)), figures.Short(p99(quiet))),
			Bound:    fmt.Sprintf("at most %g", floodFactor), Within: ratio <= floodFactor,
		},
	}, nil
}

// flood measures events and reconnections during all attacks.
func (bed *nodesBed) flood(ctx context.Context, events, again *[]time.Duration) error {
	var names []string
	for _, a := range attacks {
		names = append(names, a.name)
	}
	end, err := bed.attack(ctx, names...)
	if err != nil {
		return err
	}
	defer end()
	if err := bed.events(ctx, events); err != nil {
		return err
	}
	return bed.reconnects(ctx, again)
}

// nodesBed is a bridge with two nodes: the first is honest, the second is captured.
type nodesBed struct {
	bridge       *serve.Process
	certificates certificates
	admin, node  *nodeClient
	pods         int // number of pods that events has created
}

func (b *bench) newNodesBed(ctx context.Context, program string, certificates certificates) (bed *nodesBed, err error) {
	dir, err := b.Folder("captured")
	if err != nil {
		return nil, err
	}
	bed = &nodesBed{certificates: certificates}
	args := append([]string{"--auth-file", b.usersFile, "--data-dir", dir}, certificates.flags...)
	if bed.bridge, err = serve.StartQuietly(ctx, program, args...); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, bed.bridge.Stop())
		}
	}()

	for number, client := range map[int]**nodeClient{writer: &bed.admin, 0: &bed.node} {
		config, err := clientConfig(certificates.dir, number)
		if err != nil {
			return nil, err
		}
		*client = newNodeClient(bed.bridge.URL, config, "127.0.0.1", number)
	}
	cluster := synth.Cluster{Nodes: 2, Namespaces: 1}
	if err := bed.admin.must(ctx, http.MethodPut, synth.PoolsPath, `{"dhcp_allocation_pool":`+cluster.Pools()+`}`); err != nil {
		return nil, err
	}
	if err := bed.admin.must(ctx, http.MethodPost, synth.NodesPath, cluster.NodesBody()); err != nil {
		return nil, err
	}
	_, err = bed.reconnect(ctx) // after this the bridge knows its nodes
	return bed, err
}

func (bed *nodesBed) stop() error {
	bed.admin.http.CloseIdleConnections()
	bed.node.http.CloseIdleConnections()
	return bed.bridge.Stop()
}

// attack starts attacks. end ends them.
func (bed *nodesBed) attack(ctx context.Context, names ...string) (end func(), err error) {
	attackers, err := startAttackers(ctx, order{URL: bed.bridge.URL, Certificates: bed.certificates.dir, Names: names})
	if err != nil {
		return nil, err
	}
	<-time.After(time.Second) // the attacks need time to start
	return attackers.Kill, nil
}

// reconnect opens the stream of the honest node, and returns the time until its first event. A
// bridge that does not know the node yet refuses the stream, and reconnect tries again.
func (bed *nodesBed) reconnect(ctx context.Context) (took time.Duration, err error) {
	begun := time.Now()
	for deadline := begun.Add(streamTimeout); time.Now().Before(deadline); <-time.After(streamRetry) {
		var lines *bufio.Scanner
		var end func()
		if lines, end, err = bed.node.stream(ctx); err != nil {
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

// reconnects measures several reconnections.
func (bed *nodesBed) reconnects(ctx context.Context, to *[]time.Duration) error {
	for range reconnects {
		took, err := bed.reconnect(ctx)
		if err != nil {
			return err
		}
		*to = append(*to, took)
	}
	return nil
}

// events has a writer create pods on the honest node. For each pod it measures the time from
// the start of the PUT until the node's agent gets the event.
func (bed *nodesBed) events(ctx context.Context, to *[]time.Duration) error {
	lines, end, err := bed.node.stream(ctx)
	if err != nil {
		return err
	}
	defer end()
	from := bed.pods
	bed.pods += nodeEvents
	var took []time.Duration
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
			return err
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
		return fmt.Errorf("the agent got events of %d of %d pods", len(took), nodeEvents)
	}
	*to = append(*to, took...)
	return nil
}

// writer is the number of the client that has the credentials of a writer.
const writer = -1

// nodeClient is a client with the credentials of a node, or of the writer.
type nodeClient struct {
	url    string
	number int // of the node, or writer
	config *tls.Config
	dialer *net.Dialer
	http   *http.Client
}

func newNodeClient(url string, config *tls.Config, from string, number int) *nodeClient {
	n := &nodeClient{url: url, number: number, config: config, dialer: &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}}
	n.http = &http.Client{Transport: &http.Transport{TLSClientConfig: n.config, DialContext: n.dialer.DialContext, MaxIdleConnsPerHost: attackers}}
	return n
}

func (n *nodeClient) open(ctx context.Context, method, path string, body io.Reader) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, n.url+path, body)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	if n.number == writer {
		r.SetBasicAuth(user, password)
	}
	return n.http.Do(r)
}

// do sends a request and ignores the answer.
func (n *nodeClient) do(ctx context.Context, method, path string, body io.Reader) {
	if answer, err := n.open(ctx, method, path, body); err == nil {
		_, _ = io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
	}
}

// must sends a request below the config tree. A failure is an error.
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
