package kube_test

import (
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/coe-bridge/coe-bridge/coe/kube"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
)

// server is an API server that answers with the client and the path of a request.
func server(t *testing.T) (*httptest.Server, <-chan string) {
	asked := make(chan string, 10)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- fmt.Sprintf("%s %s as %s, %s", r.Method, r.URL.Path, r.Header.Get("Authorization"), r.UserAgent())
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"a"}}`)
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	return s, asked
}

// write writes a kubeconfig for a server with a path, and its token in a file.
func write(t *testing.T, file string, s *httptest.Server, path, tokenFile string) {
	k := api.NewConfig()
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	k.Clusters["c"] = &api.Cluster{Server: s.URL + path, CertificateAuthorityData: authority}
	k.AuthInfos["u"] = &api.AuthInfo{TokenFile: tokenFile}
	k.Contexts["x"] = &api.Context{Cluster: "c", AuthInfo: "u"}
	k.CurrentContext = "x"
	require.NoError(t, clientcmd.WriteToFile(*k, file+".new"))
	require.NoError(t, os.Rename(file+".new", file))
}

// replace replaces a file. Nobody reads a part of it.
func replace(t *testing.T, file, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(file+".new", []byte(text), 0o600))
	require.NoError(t, os.Rename(file+".new", file))
}

func TestCredentialsAreReloaded(t *testing.T) {
	one, askedOne := server(t)
	two, askedTwo := server(t)
	dir := t.TempDir()
	file, token := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "token")
	require.NoError(t, os.WriteFile(token, []byte("first"), 0o600))
	write(t, file, one, "/one", token)

	log := &log{}
	config, err := kube.Connect(file, "1.2", slog.New(slog.NewTextHandler(io.MultiWriter(log, t.Output()), nil)))
	require.NoError(t, err)
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	ask := func(asked <-chan string) string {
		ctx, cancel := context.WithTimeout(t.Context(), patience.Patience)
		defer cancel()
		_, err := client.CoreV1().Namespaces().Get(ctx, "a", metav1.GetOptions{})
		require.NoError(t, err)
		select {
		case got := <-asked:
			return got
		default:
			return "nobody"
		}
	}
	require.Equal(t, "GET /one/api/v1/namespaces/a as Bearer first, coe-bridge/1.2", ask(askedOne))

	replace(t, token, "another")
	require.Eventually(t, func() bool {
		return ask(askedOne) == "GET /one/api/v1/namespaces/a as Bearer another, coe-bridge/1.2"
	}, patience.Patience, 50*time.Millisecond)

	replace(t, file, "{")
	require.Eventually(t, func() bool {
		return ask(askedOne) != "nobody" && log.count("cannot read the new credentials for Kubernetes; using the former ones") > 0
	}, patience.Patience, 50*time.Millisecond)

	write(t, file, two, "/two/three", token)
	require.Eventually(t, func() bool {
		_, err := client.CoreV1().Namespaces().Get(t.Context(), "a", metav1.GetOptions{})
		require.NoError(t, err)
		select {
		case got := <-askedTwo:
			require.Equal(t, "GET /two/three/api/v1/namespaces/a as Bearer another, coe-bridge/1.2", got)
			return true
		case <-askedOne:
			return false
		}
	}, patience.Patience, 50*time.Millisecond)
	require.Zero(t, log.count("another"), "no secret is logged")
}

func TestConnectRefuses(t *testing.T) {
	dir := t.TempDir()
	broken := filepath.Join(dir, "broken")
	require.NoError(t, os.WriteFile(broken, []byte("{"), 0o600))
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for path, want := range map[string]string{
		"":                              "set the path of a kubeconfig",
		filepath.Join(dir, "not-there"): "not-there: no such file or directory",
		broken:                          "broken",
	} {
		_, err := kube.Connect(path, "1", slog.New(slog.DiscardHandler))
		require.ErrorContains(t, err, "connect to Kubernetes: ")
		require.ErrorContains(t, err, want)
	}
}
