package ovn

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/ovsdb"
)

// The roles of a server in a cluster. A server without a cluster has both.
const (
	leader    = "leader"
	connected = "connected" // to a majority
)

// hungAfter is how long a server may take to answer a probe if there are other endpoints.
const hungAfter = 3 * time.Second

// probed is a connection that asks a server whether it has a role for a database.
type probed struct {
	conn     *ovsdb.Conn
	endpoint string
	database string
	role     string
	probing  sync.Mutex
}

// openTimeout bounds the opening of a session at one endpoint. If there are others it is short. If there are none, a server that
// accepts the connection may be busy: one with 50,000 ports needs seconds for the first answer to another client.
func (c *Config) openTimeout(endpoints int) time.Duration {
	if endpoints > 1 {
		return c.ConnectTimeout
	}
	return max(c.ConnectTimeout, c.ReadTimeout)
}

// patience returns how long a server may take to answer a probe while this program asks it for nothing large. It is short if there are other
// endpoints. If there are none, leaving the server helps only if the connection is broken: the server may be making a large
// transaction of another client, such as that in which ovn-northd sets all ports up.
func (c *Config) patience(endpoints int) time.Duration {
	if endpoints > 1 {
		return min(c.Timeout, hungAfter)
	}
	return c.ReadTimeout
}

// dialServer connects to one endpoint. It fails if the server does not have the role.
func dialServer(ctx context.Context, endpoint, database, role string, cfg *Config) (*probed, error) {
	connecting, cancel := context.WithTimeout(ctx, cfg.ConnectTimeout)
	defer cancel()
	conn, err := ovsdb.Dial(connecting, endpoint, ovsdb.ServerDatabase, cfg.TLS)
	if err != nil {
		return nil, err
	}
	p := &probed{conn: conn, endpoint: endpoint, database: database, role: role}
	if err := p.probe(ctx); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *probed) close() { _ = p.conn.Close() }

// probe checks that the server answers before the deadline of ctx, and has the role.
func (p *probed) probe(ctx context.Context) error {
	p.probing.Lock()
	defer p.probing.Unlock()
	sent, err := p.conn.Send(ctx, []ovsdb.Operation{ovsdb.NewWaitRole(p.database, p.role)}, nil)
	if err != nil {
		return err
	}
	results, err := p.conn.Wait(ctx, sent)
	switch {
	case err != nil:
		return err
	case len(results) == 0:
		return errors.New("no result")
	case results[0].Error == ovsdb.TimedOut:
		return fmt.Errorf("the server is not %s in its cluster", p.role)
	case results[0].Error != "":
		return fmt.Errorf("%s: %s", results[0].Error, results[0].Details)
	}
	return nil
}
