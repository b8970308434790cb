package hostile_test

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
	"github.com/coe-bridge/coe-bridge/test/lab/pki"
)

const (
	// fewFiles is the number of files that the bridge can open. Half of them are for connections.
	fewFiles = 1024
	flooded  = 600 // connections of one kind, more than the bridge has
	within   = patience.Patience
)

// withFewFiles returns a program that starts coe-bridge with the limit fewFiles.
func withFewFiles(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "coe-bridge")
	text := fmt.Sprintf("#!/bin/sh\nulimit -n %d && exec %s \"$@\"\n", fewFiles, bridgetest.Program(t))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o700)) //nolint:gosec // it is a program
	return path
}

// The first bytes of a ClientHello with a length of 512 bytes.
var halfHello = []byte{0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3}

// flood opens connections without credentials from an address, until it is closed.
type flood struct {
	dialer net.Dialer
	server string

	mu   sync.Mutex
	open []net.Conn
}

// The kinds of the attacker's connections. After their first bytes they send nothing.
const (
	answered = iota // one request without credentials was answered
	halfway         // the handshake does not end
	silent          // nothing is sent
)

// connect opens a connection of a kind.
func (f *flood) connect(kind int) error {
	conn, err := f.dialer.Dial("tcp", f.server)
	if err != nil {
		return err
	}
	f.mu.Lock()
	f.open = append(f.open, conn)
	f.mu.Unlock()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	switch kind {
	case halfway:
		_, err = conn.Write(halfHello)
	case answered:
		encrypted := tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // the attacker does not care
		_, err = io.WriteString(encrypted, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
		if err == nil {
			_, err = http.ReadResponse(bufio.NewReader(encrypted), nil) //nolint:bodyclose // the attacker keeps the connection open
		}
	}
	return err
}

// many opens connections of a kind, and then fewer of the other kinds. It ignores errors.
func (f *flood) many(n int) {
	for kind, n := range []int{answered: n, halfway: n / 4, silent: n / 4} {
		var all sync.WaitGroup
		for range n {
			all.Go(func() { _ = f.connect(kind) })
		}
		all.Wait()
	}
}

func (f *flood) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, conn := range f.open {
		_ = conn.Close()
	}
	f.open = nil
}

// limits returns the metrics of refused connections and requests.
func limits(metrics string) (lines string) {
	for line := range strings.Lines(metrics) {
		if strings.HasPrefix(line, "coe_bridge_limited_total{") {
			lines += line
		}
	}
	return lines
}

// TestConnectionsWithoutCredentials: an attacker opens as many connections as it can from
// one address. The stream of an agent and the connection of a client still work, and new clients can
// connect.
func TestConnectionsWithoutCredentials(t *testing.T) {
	dir, ca := t.TempDir(), pki.New(t, "ca")
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	server := ca.Issue(t, "bridge").Write(t, dir, "bridge")
	p := bridgetest.ServeProgram(t, withFewFiles(t), "--pool", "10.11.0.0/16", "--tls-cert", server.Cert, "--tls-key", server.Key,
		"--auth-file", bridgetest.AuthFile(t, map[string]string{bridgetest.User: "writer"}), "--client-ca", file("ca.crt", string(ca.PEM())), "--client-roles", file("roles", "node:O=system:nodes\n"))
	b := p.Bridge()
	status, answer := b.Do("PUT", "/restconf/config/k8s-node:k8s-nodes-info/k8s-nodes/8f2a6d5e-0000-4000-8000-0000000000e0",
		fmt.Sprintf(`{"k8s-nodes":[{"uid":"8f2a6d5e-0000-4000-8000-0000000000e0","host-name":"worker-0","internal-ip-address":%q}]}`, nodeAddresses[0]))
	require.Equal(t, http.StatusCreated, status, answer)

	agent := ca.Issue(t, "worker-0", func(c *x509.Certificate) {
		c.Subject = pkix.Name{Organization: []string{"system:nodes"}, CommonName: "system:node:worker-0"}
	})
	shown, err := tls.X509KeyPair(agent.Cert, agent.Key)
	require.NoError(t, err)
	// newClient returns a client without connections, with an agent's certificate.
	newClient := func() *http.Client {
		config := p.TLS()
		config.Certificates = []tls.Certificate{shown}
		transport := &http.Transport{TLSClientConfig: config}
		t.Cleanup(transport.CloseIdleConnections)
		return &http.Client{Transport: transport, Timeout: within}
	}
	following := newClient()
	following.Timeout = 0
	var stream *http.Response
	bridgetest.Await(t, 5*time.Millisecond, within, "the agent follows its stream", func() error {
		stream, err = following.Get(b.URL() + "/rests/streams/node-interfaces=" + nodeAddresses[0]) //nolint:bodyclose,noctx // it is closed below
		if err == nil && stream.StatusCode != http.StatusOK {
			err = errors.Join(errors.New(stream.Status), stream.Body.Close())
		}
		return err
	})
	defer func() { _ = stream.Body.Close() }()
	events := make(chan string, 1024)
	go func() {
		defer close(events)
		for lines := bufio.NewScanner(stream.Body); lines.Scan(); {
			events <- lines.Text()
		}
	}()
	pods := 0
	makePod := func(c *http.Client) {
		t.Helper()
		answer, err := c.Post(b.URL()+podsContainer, "application/yang-data+json", strings.NewReader(podsOn(0, pods, pods+1))) //nolint:noctx // it has a timeout
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, http.StatusCreated, answer.StatusCode)
		deadline := time.After(within)
		for name := fmt.Sprintf(`"p-0-%d"`, pods); ; {
			select {
			case line, more := <-events:
				require.True(t, more, "the stream has ended")
				if strings.Contains(line, name) {
					pods++
					return
				}
			case <-deadline:
				t.Fatal("the stream does not have the pod")
			}
		}
	}
	old := newClient()
	makePod(old)

	f := &flood{dialer: net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}, Timeout: time.Second}, server: strings.TrimPrefix(b.URL(), "https://")}
	t.Cleanup(f.close)
	f.many(flooded)
	for range 3 {
		makePod(old)
		makePod(newClient())
		bridgetest.Await(t, 5*time.Millisecond, within, "the bridge is ready", func() error {
			if status, answer := b.Do("GET", "/readyz", ""); status != http.StatusOK { // the datastore can need longer than its 2 s
				return fmt.Errorf("%d %s", status, answer)
			}
			return nil
		})
	}
	near := newClient() // also from the attacker's address
	near.Transport.(*http.Transport).DialContext = (&net.Dialer{LocalAddr: f.dialer.LocalAddr}).DialContext
	makePod(near)

	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() { // open further connections during the test
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				f.close()
				f.many(flooded / 4)
			}
		}
	}()
	for range 5 {
		makePod(old)
		makePod(newClient())
	}
	close(stop)
	<-stopped
	_, metrics := b.Do("GET", "/metrics", "")
	require.Regexp(t, regexp.MustCompile(`(?m)^coe_bridge_limited_total.limit="connections". [1-9]`), limits(metrics))
	for _, conn := range f.open { // the bridge closes the others after a while
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(within)))
		_, err := io.Copy(io.Discard, conn)
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
	}
}

// TestPagesWithoutCredentials: the bridge computes the metrics at most once a second, even if there are
// more requests. Each computed page has another number of allocations.
func TestPagesWithoutCredentials(t *testing.T) {
	b := bridgetest.Start(t)
	const askers, each = 20, 50
	var mu sync.Mutex
	computed := map[string]bool{}
	begun := time.Now()
	var all sync.WaitGroup
	for range askers {
		all.Go(func() {
			for range each {
				answer, err := http.Get(b.URL() + "/metrics") //nolint:noctx // the bridge answers
				if err != nil {
					t.Error(err)
					return
				}
				text, err := io.ReadAll(answer.Body)
				if err = errors.Join(err, answer.Body.Close()); err != nil {
					t.Error(err)
				}
				_, after, _ := strings.Cut(string(text), "\ngo_memstats_mallocs_total ")
				allocated, _, _ := strings.Cut(after, "\n")
				mu.Lock()
				computed[allocated] = true
				mu.Unlock()
			}
		})
	}
	all.Wait()
	most := 1 + int(time.Since(begun)/time.Second)
	t.Logf("%d requests, %d computations in %d s", askers*each, len(computed), most)
	require.NotContains(t, computed, "", "each page has the metric")
	require.LessOrEqual(t, len(computed), most+1)
}
