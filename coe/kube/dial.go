package kube

import (
	"fmt"
	"net"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

// Time limits of a connection. If an API server hangs, its watches end after pingAfter and
// pingTimeout.
const (
	dialTimeout      = 5 * time.Second
	handshakeTimeout = 5 * time.Second
	pingAfter        = 5 * time.Second
	pingTimeout      = 5 * time.Second
)

// dial creates the connection of a configuration. It does the same as client-go, except for the
// pings: client-go needs more than 30 s to detect a hanging server, and only an environment
// variable changes that.
func dial(config *rest.Config) (connection, error) {
	server, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return connection{}, fmt.Errorf("read server of the configuration: %w", err)
	}
	how, err := config.TransportConfig()
	if err != nil {
		return connection{}, err
	}
	tlsConfig, err := transport.TLSConfigFor(how)
	if err != nil {
		return connection{}, fmt.Errorf("read certificates of the configuration: %w", err)
	}
	base := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: dialTimeout}).DialContext,
		TLSClientConfig:     tlsConfig,
		TLSHandshakeTimeout: handshakeTimeout,
		IdleConnTimeout:     90 * time.Second,
		ForceAttemptHTTP2:   true,
		HTTP2:               &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
	}
	if how.Proxy != nil {
		base.Proxy = how.Proxy
	}
	if how.DialHolder != nil {
		base.DialContext = how.DialHolder.Dial
	}
	authorised, err := transport.HTTPWrappersForConfig(how, base)
	if err != nil {
		return connection{}, fmt.Errorf("read credentials of the configuration: %w", err)
	}
	return connection{RoundTripper: authorised, server: server, base: base}, nil
}
