package kube

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// requestError is what became of a request.
type requestError struct {
	verb     string
	resource resource
	err      error
}

func (e *requestError) Error() string {
	return fmt.Sprintf("%s %s: %v", e.verb, e.resource.name, e.err)
}

func (e *requestError) Unwrap() error { return e.err }

// problemKind tells problems apart that are logged once each.
type problemKind int

const (
	none        problemKind = iota
	unreachable             // nobody answers, or not whom we trust
	credentials             // we are not whom the API server trusts
	forbidden               // a right is missing
	otherwise
)

// shared tells whether one cause gives every resource the problem.
func (k problemKind) shared() bool { return k == unreachable || k == credentials }

// needsPerson tells whether somebody must act.
func (k problemKind) needsPerson() bool { return k == credentials || k == forbidden }

// problem is what keeps a resource from being followed, and what to do.
type problem struct {
	kind problemKind
	text string
}

// explain says what an error means to whoever runs the bridge.
func explain(err error) problem {
	var request *requestError
	errors.As(err, &request)
	var untrusted *tls.CertificateVerificationError
	var alert tls.AlertError
	switch {
	case apierrors.IsUnauthorized(err), errors.As(err, &alert):
		return problem{credentials, fmt.Sprintf("the API server refuses the credentials (%v): "+
			"renew the token or certificate; a kubeconfig that is replaced is read again without a restart", cause(err))}
	case apierrors.IsForbidden(err) && request != nil:
		return problem{forbidden, fmt.Sprintf("the API server does not let the bridge %s %s: "+
			"apply deploy/kubernetes/bridge/rbac.yaml, which grants the verb %q on resource %q of API group %q (%v)",
			request.verb, request.resource.name, request.verb, request.resource.name, request.resource.group, cause(err))}
	case errors.As(err, &untrusted):
		return problem{unreachable, fmt.Sprintf("the API server's certificate is not trusted: %v; "+
			"give its authority as certificate-authority in the kubeconfig, and the name that it is for as server", untrusted.Err)}
	case isNetwork(err):
		return problem{unreachable, fmt.Sprintf("the API server can't be reached: %v; "+
			"see that it runs, and that server in the kubeconfig is its address", cause(err))}
	}
	return problem{otherwise, err.Error()}
}

// isNetwork tells whether the API server did not get to answer.
func isNetwork(err error) bool {
	var network net.Error // a *url.Error too
	return errors.As(err, &network) || errors.Is(err, errSilent)
}

// cause is what an error says beside the request, whose address says nothing new.
func cause(err error) error {
	var request *requestError
	if errors.As(err, &request) {
		err = request.err
	}
	var at *url.Error
	if errors.As(err, &at) {
		err = at.Err
	}
	return err
}
