package hostile_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cmd/bridge"
	"github.com/coe-bridge/coe-bridge/restconf/access"
	"github.com/coe-bridge/coe-bridge/test/lab/bridgetest"
)

const agentAccount = "coe-bridge/coe-bridge-agent"

// apiServer reviews tokens like Kubernetes: it accepts the tokens that it has issued. It counts the
// reviews.
type apiServer struct {
	mu    sync.Mutex
	nodes map[string]string // by token
	asked int
}

// Review implements access.Reviewer.
func (a *apiServer) Review(_ context.Context, token string) (access.Bearer, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked++
	if node, issued := a.nodes[token]; issued {
		return access.Bearer{Account: agentAccount, Node: node}, nil
	}
	return access.Bearer{}, &access.DeniedError{Says: "the token is not good here"}
}

// issue issues a token to the agent of a node.
func (a *apiServer) issue(id, node string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	token := jwt(id, "7c1d0000-0000-4000-8000-000000000001")
	if a.nodes == nil {
		a.nodes = map[string]string{}
	}
	a.nodes[token] = node
	return token
}

// jwt returns a token in the form of Kubernetes' tokens, of an account with a UID.
func jwt(id, accountUID string) string {
	claims := fmt.Sprintf(`{"iss":"https://kubernetes.default.svc","sub":"system:serviceaccount:coe-bridge:coe-bridge-agent","jti":%q,`+
		`"kubernetes.io":{"serviceaccount":{"name":"coe-bridge-agent","uid":%q}}}`, id, accountUID)
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln"
}

// withTokens configures a bridge to accept agents with tokens of the API server.
func withTokens(a *apiServer) bridgetest.Option {
	return func(c *bridge.Config) {
		c.HTTP.Access.Tokens = access.TokenConfig{Accounts: []string{agentAccount}, Reviewer: a}
	}
}

// get sends a GET with a token, and returns the status.
func get(t *testing.T, url, token string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+token)
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	return answer.StatusCode
}

// TestBadTokensFromTheNodesAddress: a pod, whose traffic has its node's address as source,
// sends tokens that it has made itself. The agent of that node can still log in with a
// renewed token, and the API server does not get a flood of reviews.
func TestBadTokensFromTheNodesAddress(t *testing.T) {
	api := &apiServer{}
	b := bridgetest.Start(t, withTokens(api))
	b.Do("PUT", "/restconf/config/k8s-node:k8s-nodes-info/k8s-nodes/8f2a6d5e-0000-4000-8000-0000000000e1",
		`{"k8s-nodes":[{"uid":"8f2a6d5e-0000-4000-8000-0000000000e1","host-name":"worker-1","internal-ip-address":"192.168.33.11"}]}`)
	forbidden := b.URL() + "/rests/data/pod:coe"
	require.Equal(t, http.StatusForbidden, get(t, forbidden, api.issue("first", "worker-1")), "the agent is authenticated, and is not allowed to read pods")

	const mostRefused, atOnce, perSecond = 100, 200, 10 // reviews: more than all budgets of restconf/access allow
	begun, sent, refused := time.Now(), 0, 0
	for ; refused < mostRefused; sent++ {
		require.Less(t, time.Since(begun), 5*time.Minute, "%d of %d tokens were refused", refused, sent)
		if get(t, forbidden, jwt(fmt.Sprint(sent), "00000000-0000-4000-8000-000000000000")) == http.StatusTooManyRequests {
			refused++
		}
	}
	require.Less(t, api.asked, atOnce+int(perSecond*time.Since(begun).Seconds()), "the API server reviews only some of the tokens")
	require.Equal(t, http.StatusForbidden, get(t, forbidden, api.issue("renewed", "worker-1")), "the renewed token is accepted")
}
