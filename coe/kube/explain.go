package kube

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// requestError is the error of a request.
type requestError struct {
	verb     string
	resource resource
	err      error
}

func (e *requestError) Error() string {
	return fmt.Sprintf("%s %s: %v", e.verb, e.resource.name, e.err)
}

func (e *requestError) Unwrap() error { return e.err }

// problemKind is the kind of a problem. Each kind is logged once.
type problemKind int

const (
	none        problemKind = iota
	unreachable             // no answer, or an untrusted certificate
	credentials             // the API server rejects the credentials
	forbidden               // a permission is missing
	otherwise
)

// shared reports whether the problem affects all resources.
func (k problemKind) shared() bool { return k == unreachable || k == credentials }

// needsPerson reports whether a person must act.
func (k problemKind) needsPerson() bool { return k == credentials || k == forbidden }

// problem is why a resource cannot be watched, and what to do.
type problem struct {
	kind problemKind
	text string
}

// explain describes an error for operators.
func explain(err error) problem {
	var request *requestError
	errors.As(err, &request)
	var untrusted *tls.CertificateVerificationError
	var alert tls.AlertError
	switch {
	case apierrors.IsUnauthorized(err), errors.As(err, &alert):
		return problem{credentials, fmt.Sprintf("the API server rejects the credentials (%v): "+
			"renew the token or certificate; a replaced kubeconfig is loaded without a restart", cause(err))}
	case apierrors.IsForbidden(err) && request != nil:
		return problem{forbidden, fmt.Sprintf("the API server does not allow the bridge to %s %s: "+
			"apply deploy/kubernetes/bridge/rbac.yaml, which grants the verb %q on resource %q of API group %q (%v)",
			request.verb, request.resource.name, request.verb, request.resource.name, request.resource.group, cause(err))}
	case apierrors.IsNotFound(err) && request != nil && request.resource.name == serviceCIDRs:
		return problem{otherwise, "the API server has no servicecidrs, which came with Kubernetes 1.33: name all ranges of cluster addresses with --service-network"}
	case apierrors.IsNotFound(err) && request != nil && request.resource.group == EgressIPs.Group:
		return problem{otherwise, fmt.Sprintf("the API server has no %s: to use egress addresses, apply deploy/kubernetes/bridge/egressips.yaml", request.resource.name)}
	case errors.As(err, &untrusted):
		return problem{unreachable, fmt.Sprintf("the API server's certificate is not trusted: %v; "+
			"set its CA as certificate-authority in the kubeconfig, and a name in the certificate as server", untrusted.Err)}
	case isNetwork(err):
		return problem{unreachable, fmt.Sprintf("the API server is unreachable: %v; "+
			"check that it runs, and that server in the kubeconfig is its address", cause(err))}
	}
	return problem{otherwise, err.Error()}
}

// isNetwork reports whether the request failed without an answer of the API server.
func isNetwork(err error) bool {
	var network net.Error // also a *url.Error
	return errors.As(err, &network) || errors.Is(err, errSilent)
}

// cause returns an error without its request, whose URL adds nothing.
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
