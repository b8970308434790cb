package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cni/uplink"
	"github.com/coe-bridge/coe-bridge/files"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

const (
	workerOne, workerTwo = "192.168.33.11", "192.168.33.12"
	onWorkerTwo          = "8f2a6d5e-0000-4000-8000-0000000000c2"
)

// agentsBed is a bridge that knows two nodes, and takes their agents' certificates.
type agentsBed struct {
	t   *testing.T
	ca  *authority
	url string
}

func newAgentsBed(t *testing.T) *agentsBed {
	ca := newAuthority(t)
	serverCert, serverKey := ca.issue(t, "bridge")
	_, url := serveFor(t, "--data-dir", filepath.Join(t.TempDir(), "data"), "--auth-file", usersFile(t), "--pool", "10.11.0.0/16",
		"--tls-cert", serverCert, "--tls-key", serverKey, "--client-ca", ca.file, "--client-roles", file(t, "roles", "node:O=system:nodes\n"))
	b := &agentsBed{t, ca, url}
	for i, address := range []string{workerOne, workerTwo} {
		b.admin("PUT", fmt.Sprintf("/restconf/config/k8s-node:k8s-nodes-info/k8s-nodes/8f2a6d5e-0000-4000-8000-0000000000e%d", i),
			fmt.Sprintf(`{"k8s-nodes":[{"uid":"8f2a6d5e-0000-4000-8000-0000000000e%d","host-name":"worker-%d","internal-ip-address":%q}]}`, i, i+1, address))
	}
	b.admin("POST", podsPath, podOn(onWorkerTwo, workerTwo))
	return b
}

func podOn(uid, node string) string {
	return fmt.Sprintf(`{"pods":[{"uid":%q,"name":"p-%s","network-NS":"shop","host-ip-address":%q,"interface":[{"uid":%q}]}]}`, uid, uid[34:], node, uid)
}

func (b *agentsBed) admin(method, path, body string) {
	b.t.Helper()
	status, answer := curl(b.t, "--cacert", b.ca.file, "-u", "admin:s3cret", "-X", method, "-H", "Content-Type: application/json", "-d", body, b.url+path)
	require.Contains(b.t, "200 201 204", status, answer)
}

// agent is the uplink of an agent on a node, with a certificate.
func (b *agentsBed) agent(node, cert, key string) *uplink.Uplink {
	b.t.Helper()
	dir := b.t.TempDir()
	log := slog.New(slog.NewTextHandler(b.t.Output(), nil))
	follow := files.New("coe_agent", log)
	client, err := follow.Client(files.File{Path: b.ca.file}, files.File{Path: cert}, files.File{Path: key})
	require.NoError(b.t, err)
	u, err := uplink.New(uplink.Config{URLs: []string{b.url}, Node: netip.MustParseAddr(node), Dir: dir, TLS: client.Config, Log: log})
	require.NoError(b.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { u.Run(ctx) })
	running.Go(func() { follow.Run(ctx) })
	b.t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return u
}

// An agent proves by its certificate of which node it is: it follows its node's stream,
// makes and deletes pods of its node, and gets at nothing else.
func TestAgentByCertificate(t *testing.T) {
	b := newAgentsBed(t)
	cert, key := b.ca.issue(t, "system:node:worker-1", "system:nodes")
	mine := uplink.Pod{UID: "8f2a6d5e-0000-4000-8000-0000000000c1", InterfaceUID: "8f2a6d5e-0000-4000-8000-0000000000c1", Namespace: "shop", Name: "mine"}
	u := b.agent(workerOne, cert, key)
	require.NoError(t, u.Post(t.Context(), mine))
	within, cancel := context.WithTimeout(t.Context(), patience.Patience)
	defer cancel()
	_, err := u.Await(within, func(r *uplink.Record) bool { return r.PodUID == mine.UID })
	require.NoError(t, err)
	_, err = u.Problem(t.Context(), "shop", mine.UID)
	require.NoError(t, err)

	theirs := b.agent(workerTwo, cert, key)
	require.Eventually(t, func() bool { return theirs.Status().Err != nil }, patience.Patience, 10*time.Millisecond)
	require.ErrorContains(t, theirs.Status().Err, "403 Forbidden")
	require.ErrorContains(t, theirs.Status().Err, "the agent of node worker-1 may follow the stream of that node")
	require.Zero(t, theirs.Count())
	mine.UID = "8f2a6d5e-0000-4000-8000-0000000000c3"
	require.ErrorContains(t, theirs.Post(t.Context(), mine), "403 Forbidden")
	require.ErrorContains(t, u.Delete(t.Context(), onWorkerTwo), "403 Forbidden")
	_, err = u.Problem(t.Context(), "shop", onWorkerTwo)
	require.ErrorContains(t, err, "403 Forbidden")
	require.NoError(t, u.Delete(t.Context(), "8f2a6d5e-0000-4000-8000-0000000000c1"))

	own := []string{"--cacert", b.ca.file, "--cert", cert, "--key", key}
	for _, path := range []string{"/rests/data", "/rests/data/pod:coe", "/restconf/config/pod:coe", "/rests/streams/changes", "/rests/data/coe-status:status", "/openapi"} {
		status, answer := curl(t, append(own, b.url+path)...)
		require.Equal(t, "403", status, "%s: %s", path, answer)
	}
	gateway := fmt.Sprintf(`{"gateway":[{"node":%q,"chassis":"c","address":"10.0.0.2","prefix-length":24,"next-hop":"10.0.0.1"}]}`, workerOne)
	for _, request := range [][]string{{"PUT", "/gateway/" + workerOne}, {"POST", ""}} {
		status, answer := curl(t, append(own, "-X", request[0], "-H", "Content-Type: application/json", "-d", gateway, b.url+"/restconf/config/coe-gateways:gateways"+request[1])...)
		require.Equal(t, "403", status, "a gateway: %s", answer)
	}
	chassis := func(address string) string {
		return fmt.Sprintf(`{"coe-agent:node":[{"address":%q,"system-id":"c"}]}`, address)
	}
	const list, older = "/rests/data/coe-agent:chassis", "/restconf/config/coe-agent:chassis"
	for _, request := range [][4]string{ // before the first report, which would be a reason of its own
		{"PUT", list + "/node=" + workerTwo, chassis(workerTwo), "403"},
		{"PUT", list + "/node=192.168.33.1%33", chassis("192.168.33.13"), "403"},
		{"PUT", older + "/node/" + workerTwo, chassis(workerTwo), "403"},
		{"PUT", list + "/node=" + workerOne, chassis(workerTwo), "400"},
		{"PUT", list + "/node=" + workerTwo, chassis(workerOne), "400"},
		{"PUT", list, `{"coe-agent:chassis":{"node":[{"address":"` + workerOne + `","system-id":"c"}]}}`, "403"},
		{"POST", list, chassis(workerOne), "403"},
		{"PATCH", list + "/node=" + workerOne, chassis(workerOne), "403"},
		{"GET", list + "/node=" + workerTwo, "", "403"},
		{"GET", list, "", "403"},
	} {
		status, answer := curl(t, append(own, "-X", request[0], "-H", "Content-Type: application/yang-data+json", "-d", request[2], b.url+request[1])...)
		require.Equal(t, request[3], status, "%v: %s", request, answer)
		require.NotContains(t, answer, "less than")
	}
	require.NoError(t, u.ReportChassis(t.Context(), "chassis-1"))
	require.NoError(t, u.ReportChassis(t.Context(), "chassis-1"), "the bridge knows it")
	reported := "chassis-1"
	for n := 2; ; n++ { // a slow machine reports less often
		next := fmt.Sprint("chassis-", n)
		if err = u.ReportChassis(t.Context(), next); err != nil {
			break
		}
		reported = next
	}
	require.ErrorContains(t, err, "has tried to report a chassis less than 10s ago")
	require.ErrorContains(t, theirs.ReportChassis(t.Context(), "chassis-1"), "403 Forbidden")
	status, answer := curl(t, append(own, "-X", "DELETE", b.url+list+"/node="+workerOne)...)
	require.Equal(t, "403", status, answer)
	status, body := curl(t, "--cacert", b.ca.file, "-u", "admin:s3cret", b.url+list)
	require.Equal(t, "200", status)
	require.JSONEq(t, `{"coe-agent:chassis":{"node":[{"address":"`+workerOne+`","system-id":"`+reported+`"}]}}`, body)
	status, body = curl(t, "--cacert", b.ca.file, "-u", "admin:s3cret", b.url+"/rests/data/pod:coe")
	require.Equal(t, "200", status)
	require.Equal(t, 1, strings.Count(body, `"host-ip-address"`), "%s", body)
	require.Contains(t, body, onWorkerTwo)
}

// TestAgentCertificateIsRenewed: the bridge refuses an agent's certificate. When the files have
// a good one, the agent uses it without a restart.
func TestAgentCertificateIsRenewed(t *testing.T) {
	b := newAgentsBed(t)
	badCert, badKey := b.ca.issue(t, "system:node:worker-3", "system:nodes")
	goodCert, goodKey := b.ca.issue(t, "system:node:worker-1", "system:nodes")
	cert, key := filepath.Join(t.TempDir(), "cert"), filepath.Join(t.TempDir(), "key")
	put := func(from, to string) {
		content, err := os.ReadFile(from)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(to, content, 0o600))
	}
	put(badCert, cert)
	put(badKey, key)
	u := b.agent(workerOne, cert, key)
	require.Eventually(t, func() bool { return u.Status().Err != nil }, patience.Patience, 10*time.Millisecond)
	require.ErrorContains(t, u.Status().Err, "403 Forbidden")
	put(goodCert, cert)
	put(goodKey, key)
	require.Eventually(t, func() bool { return u.Status().Synced }, patience.Patience, 10*time.Millisecond)
}

// A certificate of agents that names no node, or one that the bridge does not know by
// that address, is that of nobody. One may be named by an address that no node has.
func TestAgentOfNoNode(t *testing.T) {
	b := newAgentsBed(t)
	for _, c := range []struct {
		name  string
		group string
		node  string
		says  int
	}{
		{"system:node:worker-3", "system:nodes", workerOne, http.StatusForbidden},
		{"worker-1", "system:nodes", workerOne, http.StatusForbidden},
		{"system:node:worker-1", "people", workerOne, http.StatusForbidden},
		{"system:node:" + workerOne, "system:nodes", workerOne, http.StatusForbidden},
		{"system:node:192.168.33.13", "system:nodes", workerOne, http.StatusForbidden},
		{"system:node:192.168.33.13", "system:nodes", "192.168.33.13", 0},
		{"system:node:worker-1", "system:nodes", workerOne, 0},
	} {
		t.Run(c.name+" of "+c.group, func(t *testing.T) {
			cert, key := b.ca.issue(t, c.name, c.group)
			u := b.agent(c.node, cert, key)
			require.Eventually(t, func() bool { return u.Status().Synced || u.Status().Err != nil }, patience.Patience, 10*time.Millisecond)
			if c.says == 0 {
				require.NoError(t, u.Status().Err)
				return
			}
			require.ErrorContains(t, u.Status().Err, fmt.Sprint(c.says))
		})
	}
}
