// Package tokenreview authenticates service account tokens through an API server (TokenReview).
// It keeps no state.
package tokenreview

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/coe-bridge/coe-bridge/restconf/access"
)

// Audience is the required audience of tokens. Tokens for other audiences, such as the API
// server, are rejected; and a token for this audience is useless at the API server.
const Audience = "coe-bridge"

const (
	accountPrefix = "system:serviceaccount:"
	// nodeName is the claim with the node of a token that is bound to a pod (Kubernetes 1.30).
	nodeName = "authentication.kubernetes.io/node-name"
)

// Reviewer reviews tokens through an API server.
type Reviewer struct{ client kubernetes.Interface }

var _ access.Reviewer = (*Reviewer)(nil)

// New returns a Reviewer for the API server of a configuration.
func New(api *rest.Config) (*Reviewer, error) {
	client, err := kubernetes.NewForConfig(api)
	if err != nil {
		return nil, fmt.Errorf("create the Kubernetes client: %w", err)
	}
	return &Reviewer{client}, nil
}

// Review implements access.Reviewer.
func (r *Reviewer) Review(ctx context.Context, token string) (access.Bearer, error) {
	question := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{Audience}}}
	answer, err := r.client.AuthenticationV1().TokenReviews().Create(ctx, question, metav1.CreateOptions{})
	switch {
	case apierrors.IsForbidden(err):
		return access.Bearer{}, errors.New("the bridge's account must not create token reviews: allow create on tokenreviews.authentication.k8s.io")
	case err != nil:
		return access.Bearer{}, fmt.Errorf("review a token: %w", err)
	}
	return bearerOf(&answer.Status)
}

// bearerOf converts an answer. If no authenticator of the API server supports audiences, the
// answer has none, and the token's audience is unknown.
func bearerOf(status *authenticationv1.TokenReviewStatus) (b access.Bearer, err error) {
	switch {
	case !status.Authenticated:
		return b, &access.DeniedError{Says: "the token is not valid: the API server does not accept it for the audience " + Audience + reason(status.Error)}
	case !slices.Contains(status.Audiences, Audience):
		return b, &access.DeniedError{Says: "the token is not valid: it is not for the audience " + Audience}
	}
	if account, is := strings.CutPrefix(status.User.Username, accountPrefix); is {
		b.Account = strings.Replace(account, ":", "/", 1)
	}
	if names := status.User.Extra[nodeName]; len(names) == 1 {
		b.Node = names[0]
	}
	return b, nil
}

func reason(text string) string {
	if text == "" {
		return ""
	}
	return ": " + text
}
