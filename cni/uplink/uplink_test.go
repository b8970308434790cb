package uplink_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cni/uplink"
	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

const (
	uid1 = "c0e00000-c0e0-4000-8000-000000000001"
	uid2 = "c0e00000-c0e0-4000-8000-000000000002"
)

var node = netip.MustParseAddr("192.168.33.11")

// agent is an Uplink that runs until the test ends or stop is called.
type agent struct {
	*uplink.Uplink
	stop func()
}

func start(t *testing.T, cfg uplink.Config) *agent {
	t.Helper()
	if !cfg.Node.IsValid() {
		cfg.Node = node
	}
	if cfg.Dir == "" {
		cfg.Dir = t.TempDir()
	}
	if cfg.PasswordFile == "" && cfg.TokenFile == "" {
		cfg.User, cfg.PasswordFile = bridgetest.User, file(t, bridgetest.Password+"\n")
	}
	cfg.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	u, err := uplink.New(cfg)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { u.Run(ctx) })
	a := &agent{u, func() {
		cancel()
		running.Wait()
	}}
	t.Cleanup(a.stop)
	return a
}

func file(t *testing.T, text string) string {
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func bridge(t *testing.T) *bridgetest.Bridge {
	b := bridgetest.Start(t)
	status, answer := b.Do(http.MethodPut, "/restconf/config/dhcp_allocation_pool:dhcp_allocation_pool/network/default",
		`{"network":[{"network-id":"default","allocation-pool":[{"subnet":"10.42.0.0/16","gateway":"10.42.0.1"}]}]}`)
	require.Equal(t, 2, status/100, answer)
	return b
}

func of(uid string) func(*uplink.Record) bool {
	return func(r *uplink.Record) bool { return r.PodUID == uid }
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func (a *agent) await(t *testing.T, uid string) *uplink.Record {
	t.Helper()
	r, err := a.Await(within(t, patience.Patience), of(uid))
	require.NoError(t, err)
	return r
}

func (a *agent) awaitGone(t *testing.T, uid string) {
	t.Helper()
	require.Eventually(t, func() bool { return a.Find(of(uid)) == nil }, patience.Patience, 5*time.Millisecond)
}

func TestFollow(t *testing.T) {
	b := bridge(t)
	a := start(t, uplink.Config{URLs: []string{b.URL() + "/"}})
	pod := uplink.Pod{UID: uid1, InterfaceUID: uid1, Namespace: "web", Name: "front"}
	require.NoError(t, a.Post(t.Context(), pod))
	require.NoError(t, a.Post(t.Context(), pod), "again")
	r := a.await(t, uid1)
	require.Equal(t, "web:front", r.Name)
	require.Equal(t, "web", r.Namespace)
	require.True(t, r.Primary)
	require.Len(t, r.Addresses, 1)
	require.Equal(t, netip.MustParsePrefix("0.0.0.0/0"), r.Routes[len(r.Routes)-1].Destination)
	mac, err := r.HardwareAddr()
	require.NoError(t, err)
	require.Equal(t, r.MAC, mac.String())
	require.Equal(t, 1, a.Count())

	other := uplink.Pod{UID: uid2, InterfaceUID: uid2, Namespace: "web", Name: "back", Address: r.Addresses[0].IP}
	require.NoError(t, a.Post(t.Context(), other))
	require.Eventually(t, func() bool {
		says, err := a.Problem(t.Context(), "web", uid2)
		return err == nil && strings.Contains(says, "address")
	}, patience.Patience, 5*time.Millisecond, "the address is taken")

	require.NoError(t, a.Delete(t.Context(), uid1))
	require.NoError(t, a.Delete(t.Context(), uid1), "again")
	a.awaitGone(t, uid1)
	require.NoError(t, a.Delete(t.Context(), uid2))
}

// An Uplink knows the saved records of the same node without the bridge.
func TestKept(t *testing.T) {
	b := bridge(t)
	dir := t.TempDir()
	a := start(t, uplink.Config{URLs: []string{b.URL()}, Dir: dir})
	require.NoError(t, a.Post(t.Context(), uplink.Pod{UID: uid1, InterfaceUID: uid1, Namespace: "web", Name: "front"}))
	before := a.await(t, uid1)
	a.stop()
	b.Stop()

	next := start(t, uplink.Config{URLs: []string{b.URL()}, Dir: dir})
	kept := next.Find(of(uid1))
	kept.Confirmed = before.Confirmed // may have changed since
	require.Equal(t, before, kept)
	_, err := next.Await(within(t, 100*time.Millisecond), of(uid2))
	require.ErrorContains(t, err, "no connection to the bridge")
	next.stop()

	elsewhere := start(t, uplink.Config{URLs: []string{b.URL()}, Dir: dir, Node: netip.MustParseAddr("192.168.33.12")})
	require.Nil(t, elsewhere.Find(of(uid1)), "the state belongs to another node")
	elsewhere.stop()

	require.NoError(t, os.WriteFile(filepath.Join(dir, "interfaces.json"), []byte("{"), 0o600))
	require.Zero(t, start(t, uplink.Config{URLs: []string{b.URL()}, Dir: dir}).Count(), "an unreadable state is ignored")
}

// An Uplink changes to another replica if one is down, rejects it, or hangs.
func TestAnotherReplica(t *testing.T) {
	b := bridge(t)
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	refuses := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(refuses.Close)
	hangs := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	a := start(t, uplink.Config{URLs: []string{gone.URL, refuses.URL, hangs, b.URL()}, Silence: 2 * time.Second})
	status, answer := b.Do(http.MethodPut, "/restconf/config/pod:coe/pods/"+uid1, fmt.Sprintf(
		`{"pods":[{"uid":%q,"name":"front","network-NS":"web","host-ip-address":%q,"interface":[{"uid":%q}]}]}`, uid1, node, uid1))
	require.Equal(t, 2, status/100, answer)
	a.await(t, uid1)
}

func serve(t *testing.T, answer http.HandlerFunc) (url string) {
	server := httptest.NewServer(answer)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL
}

// An incomplete group is ignored. The next connection continues after the last complete one.
func TestGroups(t *testing.T) {
	event := func(id, notification string) string {
		if id != "" {
			id = "id: " + id + "\n"
		}
		return id + `data: {"ietf-restconf:notification":{"eventTime":"2026-01-01T00:00:00Z",` + notification + "}}\n\n"
	}
	put := func(uid string) string {
		return fmt.Sprintf(`"coe-agent:interface-changed":{"operation":"put","pod-uid":%q,"interface-uid":%q}`, uid, uid)
	}
	begin, complete := `"coe-agent:snapshot-begin":{}`, `"coe-agent:snapshot-complete":{}`
	deleted := fmt.Sprintf(`"coe-agent:interface-changed":{"operation":"deleted","pod-uid":%q,"interface-uid":%q}`, uid1, uid1)
	connections := []struct{ after, says string }{
		{"", ":\n\n" + event("", begin) + event("", put(uid1)) + event("5@x", complete) + event("", deleted)},
		{"5@x", ":\n\n" + event("", begin)},
		{"5@x", event("6@x", put(uid2)) + event("7@x", deleted)},
		{"7@x", ""},
	}
	asked := make(chan string, 100)
	n := 0
	a := start(t, uplink.Config{TokenFile: file(t, "secret\n"), URLs: []string{serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Header.Get("Last-Event-ID") + " " + r.Header.Get("Authorization")
		if n < len(connections) {
			_, _ = fmt.Fprint(w, connections[n].says)
			n++
		}
	})}})
	for _, c := range connections {
		require.Equal(t, c.after+" Bearer secret", <-asked)
	}
	require.Nil(t, a.Find(of(uid1)))
	require.NotNil(t, a.Find(of(uid2)))
}

// The agent trusts the configured CA of the bridge's certificate.
func TestTLS(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprint(w, "id: 1@x\ndata: {\"ietf-restconf:notification\":{\"coe-agent:snapshot-complete\":{}}}\n\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	known := x509.NewCertPool()
	known.AddCert(server.Certificate())
	a := start(t, uplink.Config{URLs: []string{server.URL}, TLS: func() *tls.Config { return &tls.Config{RootCAs: known} }})
	require.Eventually(t, func() bool { return a.Status().Synced }, patience.Patience, 5*time.Millisecond)
	a.stop()
	a = start(t, uplink.Config{URLs: []string{server.URL}})
	require.Eventually(t, func() bool { return a.Status().Err != nil }, patience.Patience, 5*time.Millisecond)
	require.ErrorAs(t, a.Status().Err, new(x509.UnknownAuthorityError))
}

// A renewed certificate is used, although the connection with the old one could be reused.
func TestCertificateIsRenewed(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if shown := r.TLS.PeerCertificates; len(shown) == 0 || shown[0].Subject.CommonName != "new" {
			http.Error(w, "the certificate has ended", http.StatusUnauthorized)
			return
		}
		_, _ = fmt.Fprint(w, "id: 1@x\ndata: {\"ietf-restconf:notification\":{\"coe-agent:snapshot-complete\":{}}}\n\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	server.EnableHTTP2, server.TLS = true, &tls.Config{ClientAuth: tls.RequestClientCert}
	server.StartTLS()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	var shown atomic.Pointer[tls.Certificate]
	shown.Store(certificate(t, "old"))
	known := x509.NewCertPool()
	known.AddCert(server.Certificate())
	a := start(t, uplink.Config{URLs: []string{server.URL}, TLS: func() *tls.Config {
		return &tls.Config{RootCAs: known, Certificates: []tls.Certificate{*shown.Load()}}
	}})
	require.Eventually(t, func() bool { return a.Status().Err != nil }, patience.Patience, 5*time.Millisecond)
	require.ErrorContains(t, a.Status().Err, "the certificate has ended")
	shown.Store(certificate(t, "new"))
	require.Eventually(t, func() bool { return a.Status().Synced }, patience.Patience, 5*time.Millisecond)
}

func certificate(t *testing.T, name string) *tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	require.NoError(t, err)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func TestRefused(t *testing.T) {
	b := bridge(t)
	a := start(t, uplink.Config{URLs: []string{b.URL()}, User: "admin", PasswordFile: file(t, "wrong")})
	require.Eventually(t, func() bool { return a.Status().Err != nil }, patience.Patience, 5*time.Millisecond)
	_, err := a.Await(within(t, 50*time.Millisecond), of(uid1))
	require.ErrorContains(t, err, "401")
	require.False(t, a.Status().Connected)
}

func TestNew(t *testing.T) {
	for _, urls := range [][]string{nil, {"192.168.33.1:8181"}, {"http://"}, {"ftp://x"}} {
		_, err := uplink.New(uplink.Config{URLs: urls})
		require.ErrorContains(t, err, "URL of the bridge")
	}
}

// The node's place and the network identity are saved like its interfaces. A snapshot without them
// deletes them.
func TestPlace(t *testing.T) {
	const place = `"coe-agent:node-changed":{"operation":"put","node":"192.168.33.11","name":"node:192.168.33.11:management",` +
		`"mac-address":"0a:58:64:60:00:02","address":"100.96.0.2","prefix-length":16,"gateway":"100.96.0.1","service-address":"100.96.0.3","edge-address":"100.96.255.254","pod-network":["10.42.0.0/16"]}`
	begin, complete := `"coe-agent:snapshot-begin":{}`, `"coe-agent:snapshot-complete":{}`
	groups, ended := make(chan string), make(chan struct{}, 9)
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		defer func() { ended <- struct{}{} }()
		for {
			select {
			case group := <-groups:
				_, _ = io.WriteString(w, group)
				w.(http.Flusher).Flush()
			case <-r.Context().Done():
				return
			}
		}
	})
	dir := t.TempDir()
	a := start(t, uplink.Config{TokenFile: file(t, "secret\n"), URLs: []string{url}, Dir: dir})
	is, known, changed := a.Place()
	require.Nil(t, is)
	require.False(t, known)
	await := func(there bool) {
		t.Helper()
		timeout := within(t, patience.Patience)
		for {
			is, known, changed = a.Place()
			if known && (is != nil) == there {
				return
			}
			select {
			case <-changed:
			case <-timeout.Done():
				require.Fail(t, "no notification")
			}
		}
	}
	event := func(id, notification string) string {
		return id + `data: {"ietf-restconf:notification":{"eventTime":"2026-01-01T00:00:00Z",` + notification + "}}\n\n"
	}
	network := func() string {
		identity, _ := a.Network()
		return identity
	}
	const port = `"coe-agent:exposed-port-changed":{"operation":"put","protocol":"tcp","port":30080,"cluster-address":"10.96.0.10","service-port":80,` +
		`"local":true,"endpoint":[{"ip":"10.42.0.2","port":8080}]}`
	exposed := []*uplink.ExposedPort{{
		Protocol: "tcp", Port: 30080, Address: netip.MustParseAddr("10.96.0.10"), ServicePort: 80, Local: true,
		Endpoints: []uplink.Endpoint{{IP: netip.MustParseAddr("10.42.0.2"), Port: 8080}},
	}, {
		External: netip.MustParseAddr("192.0.2.10"), Protocol: "tcp", Port: 80, Address: netip.MustParseAddr("10.96.0.10"), ServicePort: 80,
	}, {
		External: netip.IPv6Unspecified(), Protocol: "tcp", Port: 30080, Address: netip.MustParseAddr("fd97::10"), ServicePort: 80,
	}, {
		Own: true, Protocol: "tcp", Port: 30080, Address: netip.MustParseAddr("10.96.0.10"), ServicePort: 80,
		Endpoints: []uplink.Endpoint{{IP: netip.MustParseAddr("10.42.0.2"), Port: 8080, Node: netip.MustParseAddr("192.168.33.11")}},
	}, {
		Own: true, External: netip.MustParseAddr("10.96.0.10"), Protocol: "tcp", Port: 80, Address: netip.MustParseAddr("10.96.0.10"), ServicePort: 80, Local: true,
	}, {
		Inside: true, Protocol: "tcp", Port: 30080, Address: netip.MustParseAddr("10.96.0.10"), ServicePort: 80,
		Endpoints: []uplink.Endpoint{{IP: netip.MustParseAddr("10.42.0.2"), Port: 8080, Node: netip.MustParseAddr("192.168.33.11")}},
	}}
	const inside = `"coe-agent:inside-port-changed":{"operation":"put","protocol":"tcp","port":30080,"cluster-address":"10.96.0.10","service-port":80,` +
		`"endpoint":[{"ip":"10.42.0.2","port":8080,"node":"192.168.33.11"}]}`
	const own = `"coe-agent:own-port-changed":{"operation":"put","protocol":"tcp","port":30080,"cluster-address":"10.96.0.10","service-port":80,` +
		`"endpoint":[{"ip":"10.42.0.2","port":8080,"node":"192.168.33.11"}]}`
	const cluster = `"coe-agent:own-port-changed":{"operation":"put","external-address":"10.96.0.10","protocol":"tcp","port":80,` +
		`"cluster-address":"10.96.0.10","service-port":80,"local":true}`
	const ipv6 = `"coe-agent:exposed-ipv6-changed":{"operation":"put","external-address":"::","protocol":"tcp","port":30080,` +
		`"cluster-address":"fd97::10","service-port":80}`
	const address = `"coe-agent:exposed-address-changed":{"operation":"put","external-address":"192.0.2.10","protocol":"tcp","port":80,` +
		`"cluster-address":"10.96.0.10","service-port":80}`
	const check = `"coe-agent:health-check-changed":{"operation":"put","port":30081,"namespace":"shop","service":"web","local-endpoints":2}`
	hasPorts := func() {
		t.Helper()
		is, known := a.TakeExposed(true)
		require.True(t, known)
		require.ElementsMatch(t, exposed, is.Put)
		require.Equal(t, []netip.Addr{netip.MustParseAddr("192.168.33.11")}, is.Nodes)
		require.True(t, a.HasExternal(netip.MustParseAddr("192.0.2.10")))
		require.False(t, a.HasExternal(netip.IPv6Unspecified()))
		require.False(t, a.HasExternal(netip.MustParseAddr("10.96.0.10")))
		is, _ = a.TakeExposed(false)
		require.Equal(t, uplink.ExposedChanges{Nodes: is.Nodes}, is, "nothing has changed since")
		checks, _ := a.HealthChecks()
		require.Equal(t, []*uplink.HealthCheck{{Port: 30081, Namespace: "shop", Service: "web", Endpoints: 2}}, checks)
	}
	groups <- event("", begin) + event("", place) + event("", port) + event("", address) + event("", ipv6) + event("", own) + event("", inside) + event("", cluster) + event("", check) + event("", `"coe-agent:nodes-changed":{"node":["192.168.33.11"]}`) +
		event("", `"coe-agent:network-changed":{"identity":"n1"}`) + event("id: 5@x\n", complete)
	await(true)
	require.Equal(t, "n1", network())
	hasPorts()
	require.Equal(t, netip.MustParseAddr("100.96.0.3"), is.Service)
	require.Equal(t, netip.MustParseAddr("100.96.255.254"), is.Edge)
	require.Equal(t, []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16")}, is.Pods)
	a.stop()
	<-ended // it must not receive data for the next one

	a = start(t, uplink.Config{TokenFile: file(t, "secret\n"), URLs: []string{url}, Dir: dir})
	again, known, _ := a.Place()
	require.True(t, known)
	require.Equal(t, is, again)
	require.Equal(t, "n1", network())
	hasPorts()
	groups <- event("", `"coe-agent:exposed-port-changed":{"operation":"deleted","protocol":"tcp","port":30080}`) +
		event("", `"coe-agent:exposed-address-changed":{"operation":"deleted","external-address":"192.0.2.10","protocol":"tcp","port":80}`) +
		event("", `"coe-agent:exposed-ipv6-changed":{"operation":"deleted","external-address":"::","protocol":"tcp","port":30080}`) +
		event("", `"coe-agent:own-port-changed":{"operation":"deleted","protocol":"tcp","port":30080}`) +
		event("", `"coe-agent:inside-port-changed":{"operation":"deleted","protocol":"tcp","port":30080}`) +
		event("", `"coe-agent:own-port-changed":{"operation":"deleted","external-address":"10.96.0.10","protocol":"tcp","port":80}`) +
		event("", `"coe-agent:health-check-changed":{"operation":"deleted","port":30081}`) +
		event("id: 6@x\n", `"coe-agent:node-changed":{"operation":"deleted","node":"192.168.33.11"}`)
	await(false)
	changes, _ := a.TakeExposed(false)
	require.False(t, changes.All)
	require.Empty(t, changes.Put)
	require.Len(t, changes.Gone, 6)
	require.False(t, a.HasExternal(netip.MustParseAddr("192.0.2.10")))
	checks, _ := a.HealthChecks()
	require.Empty(t, checks)
	groups <- event("", port) + event("", address) + event("", ipv6) + event("", own) + event("", inside) + event("", cluster) + event("", check) + event("id: 7@x\n", place)
	await(true)
	require.Equal(t, "n1", network())
	hasPorts()

	_, _, others := a.Place()
	services := a.ServicesChanged()
	moved := strings.Replace(port, "10.96.0.10", "10.96.0.11", 1)
	groups <- event("", moved) + event("id: 8@x\n", check)
	<-services
	changes, _ = a.TakeExposed(false)
	require.False(t, changes.All)
	require.Empty(t, changes.Gone)
	require.Len(t, changes.Put, 1, "what has changed alone")
	require.Equal(t, "10.96.0.11", changes.Put[0].Address.String())
	select {
	case <-others:
		t.Error("only ports of services have changed")
	default:
	}

	groups <- event("", begin) + event("id: 9@x\n", complete)
	await(false)
	require.Empty(t, network())
	changes, _ = a.TakeExposed(false)
	require.Equal(t, uplink.ExposedChanges{All: true}, changes)
}

// An agent of another version did not understand all of the stream: this one does not continue it.
func TestStateOfAnotherVersion(t *testing.T) {
	dir, boot := t.TempDir(), file(t, "first\n")
	cfg := uplink.Config{URLs: []string{"http://127.0.0.1:1"}, Dir: dir, Boot: boot}
	const state = `{%s"id":"5@x~3.h","boot":"first","node":%q,"interfaces":[],"exposed-ports":[{"protocol":"tcp","port":30080,"cluster-address":"10.96.0.10","service-port":80}]}`
	for format, want := range map[string]string{"": "", `"format":19,`: "", `"format":20,`: "5@x~3.h"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "interfaces.json"), fmt.Appendf(nil, state, format, node.String()), 0o600))
		a := start(t, cfg)
		require.Equal(t, want, a.ID(), format)
		is, known := a.TakeExposed(false)
		require.True(t, known)
		require.Len(t, is.Put, 1, "it goes on with what it knows")
		a.stop()
	}
}

// After a boot of the node the saved interfaces are there, and node ports are unknown until the bridge has
// sent everything again.
func TestBoot(t *testing.T) {
	b := bridge(t)
	cfg := uplink.Config{URLs: []string{b.URL()}, Dir: t.TempDir(), Boot: file(t, "first\n")}
	a := start(t, cfg)
	require.NoError(t, a.Post(t.Context(), uplink.Pod{UID: uid1, InterfaceUID: uid1, Namespace: "web", Name: "front"}))
	a.await(t, uid1)
	a.stop()

	away := cfg
	away.URLs = []string{"http://127.0.0.1:1"}
	a = start(t, away)
	_, known := a.TakeExposed(false)
	require.True(t, known)
	require.NotEmpty(t, a.ID(), "it continues from what it has saved")
	a.stop()

	away.Boot, cfg.Boot = file(t, "second\n"), file(t, "second\n")
	for range 2 { // an agent that saves nothing new changes nothing
		a = start(t, away)
		_, known = a.TakeExposed(false)
		require.False(t, known)
		require.Empty(t, a.ID())
		require.Equal(t, 1, a.Count())
		a.stop()
	}
	a = start(t, cfg)
	require.Eventually(t, func() bool {
		_, known = a.TakeExposed(false)
		return known
	}, patience.Patience, 5*time.Millisecond)
	require.Equal(t, 1, a.Count())
}
