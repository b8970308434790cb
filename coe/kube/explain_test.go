package kube

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/url"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestExplain(t *testing.T) {
	pods := resource{name: "pods"}
	slices := resource{name: "endpointslices", group: "discovery.k8s.io"}
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	asked := func(err error) error { return &url.Error{Op: "Get", URL: "https://user:secret@c/api", Err: err} }
	for name, c := range map[string]struct {
		err  *requestError
		kind problemKind
		text string
	}{
		"nobody there": {
			&requestError{"list", pods, asked(refused)}, unreachable,
			"the API server is unreachable: dial tcp: connection refused; check that it runs, and that server in the kubeconfig is its address",
		},
		"hanging": {
			&requestError{"watch", pods, errSilent}, unreachable,
			"the API server is unreachable: no answer in time; check that it runs, and that server in the kubeconfig is its address",
		},
		"another's certificate": {
			&requestError{"list", pods, asked(&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}})}, unreachable,
			"the API server's certificate is not trusted: x509: certificate signed by unknown authority; " +
				"set its CA as certificate-authority in the kubeconfig, and a name in the certificate as server",
		},
		"token refused": {
			&requestError{"list", pods, apierrors.NewUnauthorized("Unauthorized")}, credentials,
			"the API server rejects the credentials (Unauthorized): " +
				"renew the token or certificate; a replaced kubeconfig is loaded without a restart",
		},
		"certificate refused": {
			&requestError{"list", pods, asked(&net.OpError{Op: "remote error", Err: tls.AlertError(45)})}, credentials,
			"the API server rejects the credentials (remote error: tls: expired certificate): " +
				"renew the token or certificate; a replaced kubeconfig is loaded without a restart",
		},
		"no right": {
			&requestError{"watch", slices, apierrors.NewForbidden(schema.GroupResource{Group: slices.group, Resource: slices.name}, "", errors.New("no"))},
			forbidden,
			`the API server does not allow the bridge to watch endpointslices: apply deploy/kubernetes/bridge/rbac.yaml, which grants the verb "watch" on ` +
				`resource "endpointslices" of API group "discovery.k8s.io" (endpointslices.discovery.k8s.io is forbidden: no)`,
		},
		"anything else": {
			&requestError{"list", pods, apierrors.NewInternalError(errors.New("etcd is away"))}, otherwise,
			"list pods: Internal error occurred: etcd is away",
		},
		"given up": {&requestError{"list", pods, asked(context.DeadlineExceeded)}, unreachable,
			"the API server is unreachable: context deadline exceeded; check that it runs, and that server in the kubeconfig is its address"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, problem{c.kind, c.text}, explain(c.err))
		})
	}
}
