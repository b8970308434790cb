package kube

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/coe-bridge/coe-bridge/coe"
	"github.com/coe-bridge/coe-bridge/coe/state"
)

// TestPagesAreBounded lists objects so large that a page of 500 exceeds the limit: the follower
// requests smaller pages, and larger ones again afterwards.
func TestPagesAreBounded(t *testing.T) {
	const services = 700
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		limit, err := strconv.Atoi(q.Get("limit"))
		require.NoError(t, err)
		from, _ := strconv.Atoi(q.Get("continue"))
		list := corev1.ServiceList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceList"}, ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
		for i := from; i < min(services, from+limit); i++ {
			s := corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("s", i), Namespace: "a"}}
			s.UID = types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", i))
			if i > 100 && i < 200 {
				s.Annotations = map[string]string{"large": strings.Repeat("x", 1<<20)}
			}
			list.Items = append(list.Items, s)
		}
		if from+limit < services {
			list.Continue = strconv.Itoa(from + limit)
		}
		w.Header().Set("Content-Type", "application/json")
		body, err := json.Marshal(list)
		require.NoError(t, err)
		_, _ = w.Write(body) // the client may close the connection
	}))
	defer server.Close()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(kubeconfig, []byte(`{apiVersion: v1, kind: Config, current-context: c,`+
		` clusters: [{name: c, cluster: {server: "`+server.URL+`"}}], users: [{name: c}], contexts: [{name: c, context: {cluster: c, user: c}}]}`), 0o600))
	config, err := Connect(kubeconfig, "test", slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	source := NewWatcher(Config{Client: client, Store: state.NewStore(nil, coe.Kubernetes), Log: slog.New(slog.DiscardHandler)})
	f := &follower[*corev1.ServiceList, *corev1.Service, *coe.Service]{
		resource: resource{name: "services"}, client: client.CoreV1().Services(""), table: source.tables.services,
		health: source.health.of(resource{name: "services"}),
	}
	_, err = f.list(t.Context())
	require.NoError(t, err)
	require.Len(t, source.tables.services.values, services)
}
