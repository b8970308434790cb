package main

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/coe-bridge/coe-bridge/cmd/bridge"
	"github.com/coe-bridge/coe-bridge/files"
	"github.com/coe-bridge/coe-bridge/restconf/access"
	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
	"github.com/coe-bridge/coe-bridge/test/lab/patience"
	"github.com/coe-bridge/coe-bridge/test/lab/pki"
)

var update = flag.Bool("update", false, "write the generated tables of docs/reference.md")

const operations = "../../docs/reference.md"

// The tables of flags and metrics are written from what there is:
// go test ./cmd/coe-bridge -run TestTables -update.
func TestTablesOfOperations(t *testing.T) {
	for name, table := range map[string]string{
		"flags": flagTable(t, "serve"), "agent flags": flagTable(t, "agent"), "doctor flags": flagTable(t, "doctor"), "metrics": metricTable(t),
	} {
		t.Run(name, func(t *testing.T) {
			before, err := os.ReadFile(operations)
			require.NoError(t, err)
			block := regexp.MustCompile(`(?s)(<!-- generated: ` + name + ` -->\n).*?(<!-- end -->)`)
			require.True(t, block.Match(before), "there is a place for the table of %s", name)
			after := block.ReplaceAllFunc(before, func(b []byte) []byte {
				parts := block.FindSubmatch(b)
				return bytes.Join([][]byte{parts[1], parts[2]}, []byte("\n"+table+"\n"))
			})
			if *update {
				require.NoError(t, os.WriteFile(operations, after, 0o644))
				return
			}
			require.Equal(t, string(after), string(before), "the tables are out of date: run go test ./cmd/coe-bridge -run TestTables -update")
		})
	}
}

func flagTable(t *testing.T, command string) string {
	cmd, _, err := newRoot().Find([]string{command})
	require.NoError(t, err)
	var text strings.Builder
	text.WriteString("| flag | default | meaning |\n|---|---|---|\n")
	each := func(f *pflag.Flag) {
		if f.Name == "help" {
			return
		}
		fmt.Fprintf(&text, "| `--%s` | %s | %s |\n", f.Name, shownDefault(f), f.Usage)
	}
	sorted(cmd).VisitAll(each)
	return text.String()
}

// sorted are all flags that a command takes.
func sorted(cmd *cobra.Command) *pflag.FlagSet {
	all := pflag.NewFlagSet(cmd.Name(), pflag.ContinueOnError)
	all.AddFlagSet(cmd.Flags())
	all.AddFlagSet(cmd.InheritedFlags())
	return all
}

func shownDefault(f *pflag.Flag) string {
	if slices.Contains([]string{"", "[]", "false", "0"}, f.DefValue) {
		return ""
	}
	return "`" + f.DefValue + "`"
}

// metricTable returns the table of the metrics that a bridge serves after it has mapped
// something. The metrics of Go and of the process are documented elsewhere.
func metricTable(t *testing.T) string {
	users, err := run(t, bridgetest.Password+"\n", "passwd", bridgetest.User)
	require.NoError(t, err)
	follow := files.New("coe_bridge", slog.New(slog.DiscardHandler))
	pair := pki.New(t, "ca").Issue(t, "client").Write(t, t.TempDir(), "client")
	_, err = follow.Client(files.File{}, files.File{Flag: "etcd-cert", Path: pair.Cert}, files.File{Flag: "etcd-key", Path: pair.Key})
	require.NoError(t, err)
	b := bridgeFor(t, func(cfg *bridge.Config) {
		cfg.HTTP.Access = access.Config{UsersFile: file(t, "users", users), Files: follow}
		cfg.Kubernetes = bridge.KubernetesConfig{API: &rest.Config{Host: smallCluster(t)}, AnnotateQPS: 10}
	})
	post(t, b, poolsPath, pool)
	var text string
	require.Eventually(t, func() bool {
		_, text = b.Do(http.MethodGet, "/metrics", "")
		return strings.Contains(text, "\ncoe_bridge_events_total{") && strings.Contains(text, "\ncoe_bridge_annotation_patches_total{")
	}, patience.Patience, 20*time.Millisecond, "a pod is annotated and another has an Event")
	kinds := map[string]string{}
	type metric struct{ name, help string }
	var metrics []metric
	for line := range strings.Lines(text) {
		words := strings.SplitN(strings.TrimSpace(line), " ", 4)
		if len(words) > 2 && !strings.HasPrefix(words[2], "coe_bridge_") {
			continue
		}
		switch words[1] {
		case "HELP":
			metrics = append(metrics, metric{words[2], words[3]})
		case "TYPE":
			kinds[words[2]] = words[3]
		}
	}
	require.Len(t, kinds, len(metrics))
	slices.SortFunc(metrics, func(a, b metric) int { return cmp.Compare(a.name, b.name) })
	var out strings.Builder
	out.WriteString("| metric | type | meaning |\n|---|---|---|\n")
	for _, m := range metrics {
		fmt.Fprintf(&out, "| `%s` | %s | %s |\n", m.name, kinds[m.name], m.help)
	}
	return out.String()
}

// smallCluster is the URL of an API server with two pods, one of which can't be
// given the address that it has.
func smallCluster(t *testing.T) string {
	lists := map[string]string{
		"/api/v1/namespaces": "NamespaceList", "/api/v1/nodes": "NodeList", "/api/v1/services": "ServiceList",
		"/api/v1/pods": "PodList", "/apis/discovery.k8s.io/v1/endpointslices": "EndpointSliceList",
		"/apis/networking.k8s.io/v1/networkpolicies": "NetworkPolicyList", "/apis/networking.k8s.io/v1/servicecidrs": "ServiceCIDRList",
	}
	pods := `
		{"metadata": {"uid": "8f2a6d5e-0000-4000-8000-0000000000f1", "name": "one", "namespace": "small", "resourceVersion": "1"}, "status": {"hostIP": "192.168.33.12"}},
		{"metadata": {"uid": "8f2a6d5e-0000-4000-8000-0000000000f2", "name": "two", "namespace": "small", "resourceVersion": "1"},
		 "status": {"hostIP": "192.168.33.12", "podIP": "192.168.33.12", "podIPs": [{"ip": "192.168.33.12"}]}}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		kind := lists[r.URL.Path]
		w.Header().Set("Content-Type", "application/json")
		switch {
		case kind == "":
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}`)
		case r.URL.Query().Has("watch"):
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		default:
			version, items := strings.TrimPrefix(strings.TrimPrefix(path.Dir(r.URL.Path), "/apis/"), "/api/"), ""
			if kind == "PodList" {
				items = pods
			}
			fmt.Fprintf(w, `{"kind": %q, "apiVersion": %q, "metadata": {"resourceVersion": "1"}, "items": [%s]}`, kind, version, items)
		}
	}))
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections) // the watches
	return server.URL
}
