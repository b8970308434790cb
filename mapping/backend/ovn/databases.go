package ovn

import (
	"context"
	"errors"
	"strconv"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/codec"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/ovsdb"
)

// Server is what a server says of a database (ovsdb-server(5), table Database).
type Server struct {
	Database, Endpoint string
	// Err is why the server does not answer; the rest is not known then.
	Err error
	// Leader and Connected say which part the server has in its cluster: it leads, and it reaches a majority.
	// Both are true of a server without a cluster.
	Leader, Connected bool
	// Index is the number of the last entry in the log of the cluster that the server has; 0 without a cluster.
	Index int64
}

// Servers asks each server of the databases of a configuration, at the same time, until ctx is done.
func Servers(ctx context.Context, cfg Config) ([]Server, error) {
	cfg.setDefaults()
	endpoints, err := parseEndpoints("northbound", cfg.Endpoints, &cfg)
	if err != nil {
		return nil, err
	}
	var all []Server
	for _, e := range endpoints {
		all = append(all, Server{Database: codec.Northbound.Name, Endpoint: e})
	}
	if cfg.Southbound != "" {
		if endpoints, err = parseEndpoints("southbound", cfg.Southbound, &cfg); err != nil {
			return nil, err
		}
		for _, e := range endpoints {
			all = append(all, Server{Database: Southbound, Endpoint: e})
		}
	}
	var asking sync.WaitGroup
	for i := range all {
		asking.Go(func() { all[i].Err = all[i].ask(ctx, &cfg) })
	}
	asking.Wait()
	return all, nil
}

func (s *Server) ask(ctx context.Context, cfg *Config) error {
	conn, err := ovsdb.Dial(ctx, s.Endpoint, ovsdb.ServerDatabase, cfg.TLS)
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
