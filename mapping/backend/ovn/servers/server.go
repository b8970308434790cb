package servers

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/ovsdb"
)

// Role is what a server can be in a cluster. A server without a cluster has both roles.
type Role string

// The roles.
const (
	Leader    Role = "leader"
	Connected Role = "connected" // to a majority
)

// Server is a connection for probes of a server, which must have a role.
type Server struct {
	Endpoint string
	conn     *ovsdb.Conn
	database string
	role     Role
	probing  sync.Mutex
}

// Dial connects to the server at an endpoint. It fails unless the server has the role. The context bounds the attempt, not the
// connection. The caller must close it.
func (l *List) Dial(ctx context.Context, endpoint string, role Role) (*Server, error) {
	connecting, cancel := context.WithTimeout(ctx, l.ConnectTimeout)
	defer cancel()
	conn, err := ovsdb.Dial(connecting, endpoint, ovsdb.ServerDatabase, l.TLS)
	if err != nil {
		return nil, err
	}
	s := &Server{Endpoint: endpoint, conn: conn, database: l.Database, role: role}
	if err := s.Probe(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Close closes the connection.
func (s *Server) Close() { _ = s.conn.Close() }

// Ended returns a channel that is closed when the connection has ended.
func (s *Server) Ended() <-chan struct{} { return s.conn.Ended() }

// Err returns why the connection has ended. It must not be called before.
func (s *Server) Err() error { return s.conn.Err() }

// Probe checks that the server answers before the deadline of ctx, and has the role. Several goroutines may call it.
func (s *Server) Probe(ctx context.Context) error {
	s.probing.Lock()
	defer s.probing.Unlock()
	sent, err := s.conn.Send(ctx, []ovsdb.Operation{ovsdb.NewWaitRole(s.database, string(s.role))}, nil)
	if err != nil {
		return err
	}
	results, err := s.conn.Wait(ctx, sent)
	switch {
	case err != nil:
		return err
	case len(results) == 0:
		return errors.New("no result")
	case results[0].Error == ovsdb.TimedOut:
		return fmt.Errorf("the server is not %s in its cluster", s.role)
	case results[0].Error != "":
		return fmt.Errorf("%s: %s", results[0].Error, results[0].Details)
	}
	return nil
}
