// Package tokenreview asks an API server whose a service account's token is
// (TokenReview), for who lets the bearers in. It keeps nothing.
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

// Audience is whom tokens must be for. One that is for somebody else, as the one for
// the API server that every pod may have, is not good here; and who gets to know one
// for here can do nothing with it at the API server.
const Audience = "coe-bridge"

const (
	accountPrefix = "system:serviceaccount:"
	// nodeName is what a token that is bound to a pod says of its node (Kubernetes 1.30).
	nodeName = "authentication.kubernetes.io/node-name"
)

// Reviewer asks an API server.
type Reviewer struct{ client kubernetes.Interface }

var _ access.Reviewer = (*Reviewer)(nil)

// New returns a Reviewer that asks the API server of a configuration.
func New(api *rest.Config) (*Reviewer, error) {
	client, err := kubernetes.NewForConfig(api)
	if err != nil {
		return nil, fmt.Errorf("make client of Kubernetes: %w", err)
	}
	return &Reviewer{client}, nil
}

// Review implements access.Reviewer.
func (r *Reviewer) Review(ctx context.Context, token string) (access.Bearer, error) {
	question := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{Audience}}}
	answer, err := r.client.AuthenticationV1().TokenReviews().Create(ctx, question, metav1.CreateOptions{})
	switch {
	case apierrors.IsForbidden(err):
		return access.Bearer{}, errors.New("the bridge's account may not ask: allow create on tokenreviews.authentication.k8s.io")
	case err != nil:
		return access.Bearer{}, fmt.Errorf("review a token: %w", err)
	}
	return bearerOf(&answer.Status)
}

// bearerOf reads an answer. An API server whose authenticators know no audiences names
// none: nobody can tell then whom the token is for.
func bearerOf(says *authenticationv1.TokenReviewStatus) (b access.Bearer, err error) {
	switch {
	case !says.Authenticated:
		return b, &access.DeniedError{Says: "the token is not good here: the API server does not take it for the audience " + Audience + reason(says.Error)}
	case !slices.Contains(says.Audiences, Audience):
		return b, &access.DeniedError{Says: "the token is not good here: it is not for the audience " + Audience}
	}
	if account, is := strings.CutPrefix(says.User.Username, accountPrefix); is {
		b.Account = strings.Replace(account, ":", "/", 1)
	}
	if names := says.User.Extra[nodeName]; len(names) == 1 {
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
