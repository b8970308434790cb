package access

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// TokenConfig configures the accounts of nodes' agents, and who judges their tokens.
type TokenConfig struct {
	// Accounts are Kubernetes' service accounts whose tokens are agents', as
	// "namespace/name". Without any, no token is looked at.
	Accounts []string
	Reviewer Reviewer
}

// Reviewer judges tokens. It is safe for use by many goroutines.
type Reviewer interface {
	// Review asks whose a token is. It fails with a *DeniedError where the token is not
	// good; any other error is that it could not be asked.
	Review(ctx context.Context, token string) (Bearer, error)
}

// Bearer is whose a token is.
type Bearer struct {
	Account string // "namespace/name"; empty: no service account
	Node    string // the name of the node that the token is for; empty: for none
}

const (
	// maxToken bounds what is looked at.
	maxToken = 16 << 10
	// A token that was found good, or not, is asked about again after a while: so long
	// it is good after it was taken back.
	goodTokenFor = time.Minute
	badTokenFor  = 10 * time.Second
	// reviewsAtOnce and reviewTimeout bound what is asked of the Reviewer. Agents
	// wait ten seconds for an answer.
	reviewsAtOnce = 8 // of each class of tokens
	reviewTimeout = 5 * time.Second
	reviewWait    = 3 * time.Second
)

// tokens judges the bearer tokens (RFC 6750) of agents.
type tokens struct {
	accounts []string
	reviewer Reviewer
	secret   []byte
	metrics  *metrics
	log      *slog.Logger

	// The classes of unknown tokens; see classOf.
	kindred, reserve, strange tokenClass

	mu    sync.Mutex
	known recent[mark, verdict]
	// kin and hosts are the marks (kinOf) and the addresses of good tokens.
	kin   recent[mark, struct{}]
	hosts recent[netip.Prefix, struct{}]
	// away: the Reviewer could not be asked last.
	away atomic.Bool
}

// verdict is what was found of a token.
type verdict struct {
	node   string // whose agent has it; empty: nobody's
	denied *DeniedError
	until  time.Time
}

var _ Authenticator = (*tokens)(nil)

// newTokens returns nil where no token is good.
func newTokens(cfg TokenConfig, m *metrics, log *slog.Logger) Authenticator {
	if len(cfg.Accounts) == 0 {
		return nil
	}
	t := &tokens{
		accounts: cfg.Accounts, reviewer: cfg.Reviewer, secret: make([]byte, sha256.Size),
		metrics: m, log: log,
		kindred: newTokenClass(kinBudget), reserve: newTokenClass(reserveBudget), strange: newTokenClass(addressBudget),
	}
	rand.Read(t.secret) // never fails
	return t
}

// Authenticate implements Authenticator. The token that is known was long to guess, so
// that what is limited is asking about others.
func (t *tokens) Authenticate(r *http.Request) (Identity, error) {
	token, ok := bearerToken(r)
	if !ok {
		return Identity{}, ErrNoCredentials
	}
	if len(token) > maxToken {
		return t.deny(&DeniedError{fmt.Sprintf("the token has more than %d bytes", maxToken)})
	}
	m := markOf(t.secret, ByToken, token)
	v, known := t.recall(m)
	if !known {
		var err error
		if v, err = t.review(r.Context(), AddressOf(r.RemoteAddr), token, m); err != nil {
			return Identity{}, err
		}
	}
	if v.denied != nil {
		return t.deny(v.denied)
	}
	return agentOf(v.node, ByToken), nil
}

func (t *tokens) deny(why *DeniedError) (Identity, error) {
	t.metrics.logins.WithLabelValues(badToken).Inc()
	return Identity{}, why
}

// bearerToken is the token of a request. The scheme's name may be in any case.
func bearerToken(r *http.Request) (token string, ok bool) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	token = strings.TrimSpace(token)
	return token, strings.EqualFold(scheme, "Bearer") && token != ""
}

// recall is what was found of a token not long ago.
func (t *tokens) recall(m *mark) (verdict, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	v, found := t.known.find(*m)
	return v, found && time.Now().Before(v.until)
}

func (t *tokens) remember(m *mark, v verdict) {
	v.until = time.Now().Add(goodTokenFor)
	if v.denied != nil {
		v.until = time.Now().Add(badTokenFor)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.known.put(*m, v)
}

// review asks about a token.
func (t *tokens) review(ctx context.Context, from netip.Prefix, token string, m *mark) (verdict, error) {
	kin := t.kinOf(token)
	class := t.classOf(from, kin)
	if err := t.slot(ctx, class); err != nil {
		return verdict{}, err
	}
	defer func() { <-class.slots }()
	if v, known := t.recall(m); known { // while it waited
		return v, nil
	}
	name := string(m[:])
	if after := class.failed.wait(from, name, time.Now()); after > 0 {
		t.metrics.logins.WithLabelValues(limitedLogin).Inc()
		return verdict{}, &LimitedError{fmt.Sprintf("too many logins have failed: try again in %s", after.Round(time.Second)), after}
	}
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	v, err := t.judge(ctx, token)
	if err != nil {
		return v, t.unjudged(err)
	}
	if t.away.Swap(false) {
		t.log.Info("the API server answers about agents' tokens")
	}
	if v.denied != nil {
		class.failed.failed(from, name, time.Now())
		t.log.Warn("login failed", "by", ByToken, "from", from.Addr(), "err", v.denied)
	} else {
		t.welcome(from, name, kin)
	}
	t.remember(m, v)
	return v, nil
}

// tokenClass is a class of unknown tokens. The Reviewer is asked about each class apart,
// so that tokens of one never wait for tokens of another.
type tokenClass struct {
	slots  chan struct{}
	failed *failures
}

func newTokenClass(ofAddress budget) tokenClass {
	return tokenClass{make(chan struct{}, reviewsAtOnce), newFailures(ofAddress)}
}

// classOf chooses the class of an unknown token:
//
//	token                                   | class   | budget of its address
//	kindred with a good one                 | kindred | kinBudget
//	from an address with a good one before  | reserve | reserveBudget
//	any other                               | strange | addressBudget
//
// A renewed token is kindred with the one before it. So bad tokens from its address, as
// of a pod whose traffic leaves with the node's address, do not lock it out. The claims
// by which a token is kindred are not verified. They select a budget and never let
// anybody in.
func (t *tokens) classOf(from netip.Prefix, kin *mark) *tokenClass {
	t.mu.Lock()
	defer t.mu.Unlock()
	if kin != nil {
		if _, good := t.kin.find(*kin); good {
			return &t.kindred
		}
	}
	if _, good := t.hosts.find(from.Masked()); good {
		return &t.reserve
	}
	return &t.strange
}

// welcome remembers a good token, its kin and its address.
func (t *tokens) welcome(from netip.Prefix, name string, kin *mark) {
	for _, class := range []*tokenClass{&t.kindred, &t.reserve, &t.strange} {
		class.failed.succeeded(from, name)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hosts.put(from.Masked(), struct{}{})
	if kin != nil {
		t.kin.put(*kin, struct{}{})
	}
}

// kinOf is a mark of what a service account's token and its renewals have in common:
// issuer, account and the account's uid. The uid is not public: a tenant's pod
// does not have it. It is nil where the token has no such claims. Nothing is verified.
func (t *tokens) kinOf(token string) *mark {
	var claims struct {
		Issuer     string `json:"iss"`
		Subject    string `json:"sub"`
		Kubernetes struct {
			Account struct {
				UID string `json:"uid"`
			} `json:"serviceaccount"`
		} `json:"kubernetes.io"`
	}
	_, rest, _ := strings.Cut(token, ".")
	payload, _, _ := strings.Cut(rest, ".")
	raw, err := base64.RawURLEncoding.DecodeString(payload)
	if err != nil || json.Unmarshal(raw, &claims) != nil || claims.Kubernetes.Account.UID == "" {
		return nil
	}
	return markOf(t.secret, claims.Subject, claims.Issuer+"\n"+claims.Kubernetes.Account.UID)
}

// slot waits until a token of a class may be asked about.
func (t *tokens) slot(ctx context.Context, class *tokenClass) error {
	timer := time.NewTimer(reviewWait)
	defer timer.Stop()
	select {
	case class.slots <- struct{}{}:
		return nil
	case <-timer.C:
	case <-ctx.Done():
	}
	t.metrics.logins.WithLabelValues(limitedLogin).Inc()
	return &LimitedError{"too many tokens are being looked at", time.Second}
}

func (t *tokens) unjudged(err error) error {
	t.metrics.logins.WithLabelValues(unjudgedLogin).Inc()
	if !t.away.Swap(true) {
		t.log.Error("the API server can't be asked about agents' tokens", "err", err)
	}
	return &UnjudgedError{"the API server can't be asked about the token: " + err.Error()}
}

// judge asks whose a token is, and what that makes of it.
func (t *tokens) judge(ctx context.Context, token string) (verdict, error) {
	bearer, err := t.reviewer.Review(ctx, token)
	var denied *DeniedError
	switch {
	case errors.As(err, &denied):
		return verdict{denied: denied}, nil
	case err != nil:
		return verdict{}, err
	case !slices.Contains(t.accounts, bearer.Account):
		return refused("it is not that of a service account of agents: --agent-service-account names them"), nil
	case bearer.Node == "":
		return refused("it is bound to no node: have the agent's pod mount it as a projected token (Kubernetes 1.30 or later)"), nil
	}
	return verdict{node: bearer.Node}, nil
}

func refused(why string) verdict {
	return verdict{denied: &DeniedError{"the token is not good here: " + why}}
}
