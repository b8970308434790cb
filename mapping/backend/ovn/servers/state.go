package servers

import (
	"context"
	"crypto/tls"
	"errors"
	"strconv"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/ovsdb"
)

// State is what a server says of a database (ovsdb-server(5), table Database).
type State struct {
	Database, Endpoint string
	// Err is why the server does not answer; the rest is not known then.
	Err error
	// Leader and Connected say which role the server has in its cluster: it leads, and it reaches a majority.
	// Both are true of a server without a cluster.
	Leader, Connected bool
	// Index is the number of the last entry in the log of the cluster that the server has; 0 without a cluster.
	Index int64
}

// States asks each server of some databases, at the same time, until ctx is done.
func States(ctx context.Context, databases ...*List) (all []*State) {
	var asking sync.WaitGroup
	for _, l := range databases {
		for _, e := range l.Endpoints {
			s := &State{Database: l.Database, Endpoint: e}
			all = append(all, s)
			asking.Go(func() { s.Err = s.ask(ctx, l.TLS) })
		}
	}
	asking.Wait()
	return all
}

func (s *State) ask(ctx context.Context, config *tls.Config) error {
	conn, err := ovsdb.Dial(ctx, s.Endpoint, ovsdb.ServerDatabase, config)
	if err != nil {
		return err
	}
	found := false
	err = conn.Follow(ctx, &ovsdb.Monitor{
		Table: "Database", Columns: []string{"name", "leader", "connected", "index"},
		Row: func(_ string, columns []jsontext.Value, _ bool) {
			if string(columns[0]) == strconv.Quote(s.Database) {
				found = true
				s.Leader, s.Connected = columns[1].Kind() == 't', columns[2].Kind() == 't'
				s.Index, _ = strconv.ParseInt(string(columns[3]), 10, 64) // a set of no element without a cluster
			}
		},
		Begun: func() {},
	})
	_ = conn.Close()
	<-conn.Ended()
	if err == nil && !found {
		err = errors.New("the server does not have the database")
	}
	return err
}
