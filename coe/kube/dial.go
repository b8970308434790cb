package kube

import (
	"fmt"
	"net"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

// How long an API server that is there may take. One that hangs answers no ping,
// and every watch that it holds ends after pingAfter and pingTimeout together.
const (
	dialTimeout      = 5 * time.Second
	handshakeTimeout = 5 * time.Second
	pingAfter        = 5 * time.Second
	pingTimeout      = 5 * time.Second
)

// dial makes the connection of a configuration. It does what client-go does, but
// for the pings: client-go takes half a minute and more to find that a server hangs, and
// lets only the environment say otherwise.
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
