package access

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

// judge is a Reviewer that tells of each token what is in it: "ACCOUNT NODE", or what
// it fails with.
type judge struct {
	mu    sync.Mutex
	asked int
	fails map[string]error
	hangs chan struct{} // not nil: answers come when it is closed
	// good, if not nil, says whose a token is, and whether it is good.
	good func(token string) (Bearer, bool)
}

func (j *judge) Review(ctx context.Context, token string) (Bearer, error) {
	j.mu.Lock()
	j.asked++
	err := j.fails[token]
	j.mu.Unlock()
	if j.hangs != nil {
		select {
		case <-j.hangs:
		case <-ctx.Done():
			return Bearer{}, ctx.Err()
		}
	}
	if err != nil {
		return Bearer{}, err
	}
	if j.good != nil {
		if bearer, good := j.good(token); good {
			return bearer, nil
		}
		return Bearer{}, &DeniedError{"forged"}
	}
	account, node, _ := strings.Cut(token, "+")
	return Bearer{Account: account, Node: node}, nil
}

// fail has a token fail from now on; nil: no more.
func (j *judge) fail(token string, with error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.fails == nil {
		j.fails = map[string]error{}
	}
	j.fails[token] = with
}

const agents = "coe-bridge/coe-bridge-agent"

// tokenBed is what judges tokens.
type tokenBed struct {
	Authenticator
	*judge
	t   testing.TB
	log *logged
}

func newTokenBed(t testing.TB) *tokenBed {
	t.Helper()
	b := &tokenBed{judge: &judge{}, t: t, log: &logged{}}
	opened, err := Open(Config{Tokens: TokenConfig{Accounts: []string{agents}, Reviewer: b.judge}},
		slog.New(slog.NewTextHandler(b.log, nil)), prometheus.NewRegistry())
	require.NoError(t, err)
	b.Authenticator = opened
	return b
}

func (b *tokenBed) login(authorization, from string) (Identity, error) {
	r := httptest.NewRequestWithContext(b.t.Context(), http.MethodGet, "/", http.NoBody)
	r.Header.Set("Authorization", authorization)
	r.RemoteAddr = net.JoinHostPort(from, "1234")
	return b.Authenticate(r)
}

func TestTokens(t *testing.T) {
	b := newTokenBed(t)
	b.fail("bad", &DeniedError{"no such token"})
	b.fail("away", errors.New("connection refused"))
	worker := Identity{Name: "system:node:worker-1", Role: Node, Node: "worker-1", By: ByToken}
	for _, c := range []struct {
		name, authorization string
		want                Identity
		says                string
	}{
		{"agent", "Bearer " + agents + "+worker-1", worker, ""},
		{"agent again", "bearer  " + agents + "+worker-1", worker, ""},
		{"another account", "Bearer shop/default+worker-1", Identity{}, "not that of a service account of agents"},
		{"no account", "Bearer +worker-1", Identity{}, "not that of a service account of agents"},
		{"no node", "Bearer " + agents, Identity{}, "bound to no node"},
		{"refused", "Bearer bad", Identity{}, "no such token"},
		{"nobody to ask", "Bearer away", Identity{}, "can't be asked about the token: connection refused"},
		{"too long", "Bearer " + strings.Repeat("x", maxToken+1), Identity{}, "more than 16384 bytes"},
		{"empty", "Bearer ", Identity{}, ErrNoCredentials.Error()},
		{"password", "Basic eDp4", Identity{}, ErrNoCredentials.Error()},
		{"nothing", "", Identity{}, ErrNoCredentials.Error()},
	} {
		t.Run(c.name, func(t *testing.T) {
			who, err := b.login(c.authorization, "192.0.2.1")
			require.Equal(t, c.want, who)
			if c.says == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.says)
			}
		})
	}
	require.NotContains(t, b.log.String(), "worker-1", "no token is logged")
	var unjudged *UnjudgedError
	_, err := b.login("Bearer away", "192.0.2.1")
	require.ErrorAs(t, err, &unjudged)
}

// The result for a token is kept for a while: a good one is asked about again after
// a minute, a bad one after ten seconds, and one of which nobody could tell at once.
func TestTokensAreKnownForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTokenBed(t)
		good, bad := "Bearer "+agents+"+n", "Bearer bad"
		b.fail("bad", &DeniedError{"no"})
		for range 100 {
			_, err := b.login(good, "192.0.2.1")
			require.NoError(t, err)
			_, err = b.login(bad, "192.0.2.1")
			require.Error(t, err)
		}
		require.Equal(t, 2, b.asked)
		b.fail("bad", nil)
		<-time.After(badTokenFor)
		_, err := b.login(bad, "192.0.2.1")
		require.ErrorContains(t, err, "not that of a service account")
		b.fail(agents+"+n", &DeniedError{"taken back"})
		_, err = b.login(good, "192.0.2.1")
		require.NoError(t, err)
		<-time.After(goodTokenFor)
		_, err = b.login(good, "192.0.2.1")
		require.ErrorContains(t, err, "taken back")

		b.fail("+x", errors.New("away"))
		for range 3 {
			before := b.asked
			_, err = b.login("Bearer +x", "192.0.2.1")
			require.ErrorContains(t, err, "away")
			require.Equal(t, before+1, b.asked)
		}
	})
}

// A caller that tries many tokens must wait, and no review is made. Agents at other
// addresses, and known agents, do not wait.
func TestTokensAreLimited(t *testing.T) { synctest.Test(t, testTokensAreLimited) }

func testTokensAreLimited(t *testing.T) {
	b := newTokenBed(t)
	good := "Bearer " + agents + "+n"
	_, err := b.login(good, "192.0.2.1")
	require.NoError(t, err)
	var limited *LimitedError
	for i := range 3 * addressBudget.burst {
		_, err = b.login(fmt.Sprint("Bearer guess", i), "192.0.2.1")
		require.Error(t, err)
	}
	require.ErrorAs(t, err, &limited)
	require.Positive(t, limited.After)
	require.Equal(t, reserveBudget.burst+1, b.asked)
	for i := range 3 * addressBudget.burst {
		_, err = b.login(fmt.Sprint("Bearer guess", i, "elsewhere"), "192.0.2.3")
		require.Error(t, err)
	}
	require.Equal(t, reserveBudget.burst+1+addressBudget.burst, b.asked)
	_, err = b.login(good, "192.0.2.1")
	require.NoError(t, err)
	_, err = b.login("Bearer "+agents+"+other", "192.0.2.2")
	require.NoError(t, err)
}

// jwt is a token with the claims that Kubernetes makes, which the judge knows by id.
func (b *tokenBed) jwt(id, accountUID string) string {
	claims := fmt.Sprintf(`{"iss":"https://kubernetes","sub":"system:serviceaccount:coe-bridge:coe-bridge-agent","jti":%q,`+
		`"kubernetes.io":{"serviceaccount":{"name":"coe-bridge-agent","uid":%q}}}`, id, accountUID)
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln"
}

// Bad tokens from a node's address, as of a pod behind it, do not lock out the renewed
// token of its agent: neither slow ones nor a flood, and not after a restart either. The
// Reviewer is asked about no more than the budgets allow.
func TestRenewedTokenBesideBadOnes(t *testing.T) {
	const node = "192.0.2.1"
	for _, c := range []struct {
		name    string
		every   time.Duration // between bad tokens
		most    int           // reviews of bad tokens
		opaque  bool          // the agent's tokens have no claims
		restart bool          // the agent comes back to a bridge that another agent has reached
	}{
		{name: "one every 2 s", every: 2 * time.Second, most: 1830},
		{name: "one every 2 s, of opaque tokens", every: 2 * time.Second, most: 1830, opaque: true},
		{name: "a flood", every: 50 * time.Millisecond, most: 18100},
		{name: "a flood after a restart", every: 50 * time.Millisecond, most: 1900, restart: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newTokenBed(t)
				good := map[string]bool{}
				b.good = func(token string) (Bearer, bool) { return Bearer{agents, "worker-1"}, good[token] }
				issue := func(id string) string {
					token := b.jwt(id, "5f0e0000-0000-4000-8000-000000000001")
					if c.opaque {
						token = "opaque-" + id
					}
					good[token] = true
					return token
				}
				first := node
				if c.restart {
					first = "192.0.2.2"
				}
				_, err := b.login("Bearer "+issue("first"), first)
				require.NoError(t, err)
				asked := b.asked
				for i := range addressBudget.burst + int(time.Hour/c.every) {
					if i >= addressBudget.burst {
						<-time.After(c.every)
					}
					forged := b.jwt(fmt.Sprint("forged", i), "00000000-0000-4000-8000-000000000000")
					_, err := b.login("Bearer "+forged, node)
					require.Error(t, err)
				}
				require.LessOrEqual(t, b.asked-asked, c.most)
				who, err := b.login("Bearer "+issue("renewed"), node)
				require.NoError(t, err)
				require.Equal(t, "worker-1", who.Node)
			})
		})
	}
}

// A caller that knows the claims of a good token is bounded too, and locks out no other address.
func TestForgedKinIsLimited(t *testing.T) { synctest.Test(t, testForgedKinIsLimited) }

func testForgedKinIsLimited(t *testing.T) {
	b := newTokenBed(t)
	good := b.jwt("good", "u")
	b.good = func(token string) (Bearer, bool) { return Bearer{agents, "n"}, token == good }
	_, err := b.login("Bearer "+good, "192.0.2.1")
	require.NoError(t, err)
	for i := range 5 * kinBudget.burst {
		_, err = b.login("Bearer "+b.jwt(fmt.Sprint(i), "u"), "192.0.2.1")
		require.Error(t, err)
	}
	var limited *LimitedError
	require.ErrorAs(t, err, &limited)
	require.Equal(t, kinBudget.burst+1, b.asked)
	_, err = b.login("Bearer "+b.jwt("another", "u"), "192.0.2.2")
	require.NotErrorAs(t, err, &limited)
}

// An API server that hangs is given up, and holds up no more than so many at once.
func TestTokensHaveDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTokenBed(t)
		b.hangs = make(chan struct{})
		begun := time.Now()
		var logins sync.WaitGroup
		limited := make(chan error, 2*reviewsAtOnce)
		for i := range 2 * reviewsAtOnce {
			logins.Go(func() {
				_, err := b.login(fmt.Sprint("Bearer ", agents, "+", i), "192.0.2.1")
				limited <- err
			})
		}
		logins.Wait()
		require.LessOrEqual(t, time.Since(begun), reviewTimeout)
		require.Equal(t, reviewsAtOnce, b.asked)
		counts := map[string]int{}
		for range 2 * reviewsAtOnce {
			counts[fmt.Sprintf("%T", <-limited)]++
		}
		require.Equal(t, map[string]int{"*access.LimitedError": reviewsAtOnce, "*access.UnjudgedError": reviewsAtOnce}, counts)
	})
}

// However many tokens come, what is kept is bounded.
func TestTokensAreBounded(t *testing.T) {
	b := newTokenBed(t)
	judged := b.Authenticator.(*Access).Authenticator.(*tokens)
	for i := range 5 * maxTracked {
		_, err := b.login(fmt.Sprint("Bearer ", agents, "+", i), "192.0.2.1")
		require.NoError(t, err)
	}
	require.LessOrEqual(t, len(judged.known.young)+len(judged.known.old), 2*maxTracked)
}
