// Package servers is about the servers of one of OVN's databases: a single one, or the members of a cluster. It says how long a server may
// take, checks that it answers and which role it has in the cluster, and asks all for their state.
//
// A List keeps no connection. Its callers have the connections, and decide which server they use and when they try again.
// The package knows no table of OVN.
package servers

import (
	"crypto/tls"
	"fmt"
	"strings"
	"time"
)

// HungAfter is how long a server may take to answer a probe if there are others.
const HungAfter = 3 * time.Second

// Bounds of the time between attempts to connect.
const (
	MinRetry = 50 * time.Millisecond
	MaxRetry = time.Second
)

// List has the servers of a database: all members of a cluster, or one server. All fields must be set, but TLS only for ssl: endpoints.
// States needs no times.
type List struct {
	Database  string
	Endpoints []string
	TLS       *tls.Config // used for each new connection
	// Timeout is how long a server may take to answer a small request.
	Timeout time.Duration
	// ReadTimeout is how long a server may send nothing while it is read.
	ReadTimeout time.Duration
	// ConnectTimeout bounds the attempt to connect to one endpoint.
	ConnectTimeout time.Duration
	// Probe is the interval at which a server in use is probed.
	Probe time.Duration
}

// ParseEndpoints parses a comma-separated list of unix:PATH, tcp:HOST:PORT and, if there is a certificate, ssl:HOST:PORT.
func ParseEndpoints(list string, certificate bool) ([]string, error) {
	endpoints := strings.Split(list, ",")
	for _, e := range endpoints {
		scheme, rest, _ := strings.Cut(e, ":")
		switch {
		case rest == "":
		case scheme == "ssl" && !certificate:
			return nil, fmt.Errorf("endpoint %q: needs a certificate and its key", e)
		case scheme == "unix", scheme == "tcp", scheme == "ssl":
			continue
		}
		return nil, fmt.Errorf("endpoint %q: want unix:PATH, tcp:HOST:PORT or ssl:HOST:PORT", e)
	}
	return endpoints, nil
}

// OpenTimeout bounds the opening of a session at one endpoint. If there are others it is short. If there are none, a server that
// accepts the connection may be busy: one with 50,000 ports needs seconds for the first answer to another client.
func (l *List) OpenTimeout() time.Duration {
	if len(l.Endpoints) > 1 {
		return l.ConnectTimeout
	}
	return max(l.ConnectTimeout, l.ReadTimeout)
}

// Patience returns how long a server may take to answer a probe while this program asks it for nothing large. It is short if there are other
// endpoints. If there are none, leaving the server helps only if the connection is broken: the server may be making a large
// transaction of another client, such as that in which ovn-northd sets all ports up.
func (l *List) Patience() time.Duration {
	if len(l.Endpoints) > 1 {
		return min(l.Timeout, HungAfter)
	}
	return l.ReadTimeout
}
