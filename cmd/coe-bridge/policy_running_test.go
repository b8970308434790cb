package main

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/coe-bridge/coe-bridge/cmd/coe-bridge/output"
)

// apiServer serves the objects of a file as lists, two in a page, and returns a kubeconfig.
func apiServer(t *testing.T, objects string) string {
	text, err := os.ReadFile(objects)
	require.NoError(t, err)
	lists := map[string][]json.RawMessage{}
	var all struct{ Items []json.RawMessage }
	require.NoError(t, yaml.Unmarshal(text, &all))
	for _, object := range all.Items {
		var h struct{ Kind string }
		require.NoError(t, json.Unmarshal(object, &h))
		plural := map[string]string{"NetworkPolicy": "networkpolicies"}[h.Kind]
		if plural == "" {
			plural = strings.ToLower(h.Kind) + "s"
		}
		lists[plural] = append(lists[plural], object)
	}
	kinds := map[string]string{
		"namespaces": "v1 NamespaceList", "nodes": "v1 NodeList", "pods": "v1 PodList", "services": "v1 ServiceList",
		"endpointslices": "discovery.k8s.io/v1 EndpointSliceList", "networkpolicies": "networking.k8s.io/v1 NetworkPolicyList",
	}
	if lists["egressips"] != nil {
		kinds["egressips"] = "coe-bridge.io/v1 EgressIPList"
	}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer reader" {
			http.Error(w, `{"message": "Unauthorized"}`, http.StatusUnauthorized)
			return
		}
		version, kind, known := strings.Cut(kinds[path.Base(r.URL.Path)], " ")
		if !known {
			http.NotFound(w, r)
			return
		}
		from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
		items, next := lists[path.Base(r.URL.Path)][from:], ""
		if len(items) > 2 {
			items, next = items[:2], strconv.Itoa(from+2)
		}
		list := map[string]any{"apiVersion": version, "kind": kind, "metadata": map[string]string{"continue": next}, "items": output.Listed(items)}
		_ = json.NewEncoder(w).Encode(list)
	}))
	t.Cleanup(server.Close)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return file(t, "kubeconfig", fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: a,
clusters: [{name: a, cluster: {server: %q, certificate-authority-data: %s}}], users: [{name: a, user: {token: reader}}], contexts: [{name: a, context: {cluster: a, user: a}}]}`, server.URL, base64.StdEncoding.EncodeToString(authority)))
}

// TestPolicyOfRunningCluster: a running cluster gives the same answers as files with its objects,
// and files are applied to it.
func TestPolicyOfRunningCluster(t *testing.T) {
	kubeconfig := apiServer(t, policyCluster)
	for name, args := range map[string]string{
		"check-allowed.txt": "check --from shop/web --to shop/db:5432",
		"explain.json":      "explain shop/db -o json",
		"reach-to.json":     "reach --to shop/db -o json",
	} {
		for _, from := range []string{"--kubeconfig " + kubeconfig, "--cluster " + policyCluster} {
			out, err := runPolicy(t, "", strings.Fields(args+" "+from)...)
			require.NoError(t, err)
			requireGolden(t, "testdata/policy/"+name, out)
		}
	}

	const open = "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: deny-all, namespace: shop}, spec: {podSelector: {}, ingress: [{}]}}"
	_, err := runPolicy(t, "", "check", "--kubeconfig", kubeconfig, "--from", "shop/db", "--to", "shop/web:80")
	require.Equal(t, output.Exit{Status: 3}, err)
	out, err := runPolicy(t, "---\n"+open, "check", "--kubeconfig", kubeconfig, "-f", "-", "--from", "192.0.2.7", "--to", "shop/web:80")
	require.NoError(t, err, out)
	require.Contains(t, out, "spec.ingress[0] of policy shop/deny-all")

	// A pod that is applied again stays on its node, with its address.
	const relabelled = "{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop, labels: {app: other}}}"
	out, err = runPolicy(t, "---\n"+relabelled, "check", "--cluster", policyCluster, "-f", "-", "--from", "shop/web", "--to", "shop/db:5432")
	require.Equal(t, output.Exit{Status: 3}, err)
	require.Contains(t, out, "10.1.0.2")
}

func TestPolicyOfRunningClusterRefuses(t *testing.T) {
	kubeconfig := apiServer(t, policyCluster)
	text, err := os.ReadFile(kubeconfig)
	require.NoError(t, err)
	unauthorized := file(t, "kubeconfig", strings.Replace(string(text), "token: reader", "token: nobody", 1))
	for name, c := range map[string]struct{ args, want string }{
		"unauthorized": {"--kubeconfig " + unauthorized, "/api/v1/namespaces: 401 Unauthorized Unauthorized"},
		"both":         {"--kubeconfig a --cluster b", "none of the others can be"},
		"no pod":       {"--kubeconfig " + kubeconfig, "pod shop/none is not in the cluster"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := run(t, "", append([]string{"policy", "explain", "shop/none"}, strings.Fields(c.args)...)...)
			require.ErrorContains(t, err, c.want)
		})
	}
}
