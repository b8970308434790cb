package hostile_test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
	"github.com/coe-bridge/coe-bridge/test/lab/etcd"
	"github.com/coe-bridge/coe-bridge/test/lab/ovsdb"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
	"github.com/coe-bridge/coe-bridge/test/lab/pki"
)

const renewWithin = patience.Patience

// tlsFiles are the TLS files of a program. Tests replace them.
type tlsFiles struct{ ca, cert, key string }

func newTLSFiles(t *testing.T) tlsFiles {
	dir := t.TempDir()
	return tlsFiles{filepath.Join(dir, "ca.pem"), filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")}
}

// write replaces each file by a rename, as an operator does.
func (f tlsFiles) write(t *testing.T, ca, cert, key []byte) {
	t.Helper()
	for path, content := range map[string][]byte{f.ca: ca, f.cert: cert, f.key: key} {
		require.NoError(t, os.WriteFile(path+".new", content, 0o600))
		require.NoError(t, os.Rename(path+".new", path))
	}
}

// copy replaces the files by copies of other files.
func (f tlsFiles) copy(t *testing.T, ca string, pair pki.Paths) {
	t.Helper()
	var contents [][]byte
	for _, path := range []string{ca, pair.Cert, pair.Key} {
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		contents = append(contents, content)
	}
	f.write(t, contents[0], contents[1], contents[2])
}

// awaitMetric waits until a bridge's metric of a file meets a condition.
func awaitMetric(t *testing.T, b *bridgetest.Bridge, name, file string, fits func(value string) bool) {
	t.Helper()
	line := regexp.MustCompile(fmt.Sprintf(`(?m)^%s\{file="%s"\} (\S+)$`, name, file))
	bridgetest.Await(t, 20*time.Millisecond, renewWithin, name+" of "+file, func() error {
		status, text := b.Do(http.MethodGet, "/metrics", "")
		if status != http.StatusOK {
			return fmt.Errorf("GET /metrics: %d", status)
		}
		found := line.FindStringSubmatch(text)
		if found == nil || !fits(found[1]) {
			return fmt.Errorf("it is %v", found)
		}
		return nil
	})
}

func is(want string) func(string) bool { return func(value string) bool { return value == want } }

func awaitConnected(t *testing.T, b *bridgetest.Bridge, want bool) {
	t.Helper()
	bridgetest.Await(t, 5*time.Millisecond, renewWithin, fmt.Sprintf("connected is %t", want), func() error {
		if is := b.Status().Backend; is.Connected != want {
			return fmt.Errorf("connected is %t; last error %q", is.Connected, is.LastError)
		}
		return nil
	})
}

// TestCertificatesOfOVSPKI: serve accepts a northbound server whose certificate is from the CA. Like
// OVN's own clients it does not check the host, because certificates of ovs-pki name none. It refuses
// a server of another CA. When all certificates and the CA are renewed, it uses the new ones without
// a restart. If a file is invalid, it keeps the old ones.
func TestCertificatesOfOVSPKI(t *testing.T) {
	old, renewed := ovsdb.NewPKI(t), ovsdb.NewPKI(t)
	of, mine, strange := newTLSFiles(t), newTLSFiles(t), newTLSFiles(t)
	of.copy(t, old.CA(), old.Issue(t, "server"))
	mine.copy(t, old.CA(), old.Issue(t, "bridge"))
	strange.copy(t, renewed.CA(), old.Issue(t, "other"))
	port := ovsdb.FreePort(t)
	server := ovsdb.Start(t, "--remote=pssl:"+port+":127.0.0.1", "--private-key="+of.key, "--certificate="+of.cert, "--ca-cert="+of.ca)
	serve := func(f tlsFiles) *bridgetest.Process {
		return bridgetest.Serve(t, "--listen", "127.0.0.1:0", "--backend", "ovn", "--ovn-nb", "ssl:127.0.0.1:"+port,
			"--ovn-ca", f.ca, "--ovn-cert", f.cert, "--ovn-key", f.key)
	}
	b := serve(mine)
	b.Bridge().AwaitSync(renewWithin)
	doubting := serve(strange)
	bridgetest.Await(t, 5*time.Millisecond, renewWithin, "a server of another CA is refused", func() error {
		st := doubting.Bridge().Status().Backend
		if st.Connected || !strings.Contains(st.LastError, "unknown authority") {
			return fmt.Errorf("%+v", st)
		}
		return nil
	})

	require.NoError(t, os.WriteFile(mine.ca, []byte("broken"), 0o600))
	awaitMetric(t, b.Bridge(), "coe_bridge_file_current", "ovn-ca", is("0"))
	server.Restart(t)
	b.Bridge().AwaitSync(renewWithin)

	server.Kill(t)
	awaitConnected(t, b.Bridge(), false)
	of.copy(t, renewed.CA(), renewed.Issue(t, "server"))
	server.Restart(t)
	bridgetest.Await(t, 5*time.Millisecond, renewWithin, "the new CA is not trusted yet", func() error {
		if st := b.Bridge().Status().Backend; st.Connected || !strings.Contains(st.LastError, "unknown authority") {
			return fmt.Errorf("%+v", st)
		}
		return nil
	})
	mine.copy(t, renewed.CA(), renewed.Issue(t, "bridge"))
	awaitConnected(t, b.Bridge(), true)
	b.Bridge().AwaitSync(renewWithin)
	awaitMetric(t, b.Bridge(), "coe_bridge_file_current", "ovn-ca", is("1"))
}

// TestCertificatesOfEtcdAreRenewed: the certificate for etcd expires soon, and the log, the metrics
// and the status report it. Then the CA and all certificates are renewed. etcd is restarted and no
// longer trusts the old ones. The bridge works without a restart.
func TestCertificatesOfEtcdAreRenewed(t *testing.T) {
	old, renewed := pki.New(t, "old"), pki.New(t, "renewed")
	of, mine := newTLSFiles(t), newTLSFiles(t)
	pair := old.Issue(t, "etcd")
	of.write(t, old.PEM(), pair.Cert, pair.Key)
	ends := time.Now().Add(5 * time.Minute).Truncate(time.Second)
	pair = old.Issue(t, "bridge", pki.Until(ends)) // valid since an hour ago
	mine.write(t, old.PEM(), pair.Cert, pair.Key)

	cluster, err := etcd.RunTLS(t.Context(), 1, etcd.TLS{CA: of.ca, Cert: of.cert, Key: of.key})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cluster.Close()) })
	b := bridgetest.Serve(t, "--listen", "127.0.0.1:0", "--etcd-endpoints", strings.Join(cluster.Endpoints(), ","),
		"--etcd-ca", mine.ca, "--etcd-cert", mine.cert, "--etcd-key", mine.key)
	b.Bridge().AwaitSync(renewWithin)
	awaitMetric(t, b.Bridge(), "coe_bridge_certificate_end_timestamp_seconds", "etcd-cert", func(value string) bool {
		var seconds float64
		_, err := fmt.Sscan(value, &seconds)
		return err == nil && int64(seconds) == ends.Unix()
	})
	reported := func() error {
		for _, p := range b.Bridge().Status().Problems {
			if p.Kind == "certificate" && p.Name == "etcd-cert" && p.Reason == "CertificateExpires" {
				return nil
			}
		}
		return fmt.Errorf("the status does not say that etcd-cert must be renewed")
	}
	require.NoError(t, reported())
	show := exec.CommandContext(t.Context(), bridgetest.Program(t), "status", "--server", b.Bridge().URL())
	show.Env = append(os.Environ(), "COE_BRIDGE_PASSWORD="+bridgetest.Password)
	shown, err := show.CombinedOutput()
	require.NoError(t, err, "%s", shown)
	require.Contains(t, string(shown), "(--etcd-cert) expires at "+ends.UTC().Format(time.RFC3339)+": renew it")
	bridgetest.Await(t, 20*time.Millisecond, renewWithin, "the log reports it", func() error {
		if !b.Log().Says(0, "certificate must be renewed now", "etcd-cert") {
			return fmt.Errorf("the log does not report it")
		}
		return nil
	})

	pair = renewed.Issue(t, "bridge")
	mine.write(t, append(old.PEM(), renewed.PEM()...), pair.Cert, pair.Key)
	bridgetest.Await(t, 20*time.Millisecond, renewWithin, "the certificate is renewed", func() error {
		if reported() == nil {
			return fmt.Errorf("the status says that the certificate must be renewed")
		}
		return nil
	})
	pair = renewed.Issue(t, "etcd")
	of.write(t, renewed.PEM(), pair.Cert, pair.Key)
	cluster.Members[0].Kill()
	require.NoError(t, cluster.Members[0].Start())
	bridgetest.Await(t, 20*time.Millisecond, renewWithin, "the bridge writes to etcd", func() error {
		status, answer, err := b.Client().Do(t.Context(), http.MethodPut, "/restconf/config/pod:coe/pods/8f1d0a4e-1c2b-4f53-9a59-93f2ce1d2a01",
			`{"pods":[{"uid":"8f1d0a4e-1c2b-4f53-9a59-93f2ce1d2a01","name":"web","network-NS":"shop","host-ip-address":"10.0.0.1","interface":[{"uid":"8f1d0a4e-1c2b-4f53-9a59-93f2ce1d2a02"}]}]}`)
		if err == nil && status != http.StatusCreated && status != http.StatusOK && status != http.StatusNoContent {
			err = fmt.Errorf("PUT: %d %s", status, answer)
		}
		return err
	})
}
