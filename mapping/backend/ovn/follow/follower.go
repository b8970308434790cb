package follow

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/ovsdb"
	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/servers"
)

// follower follows a table of a database.
type follower struct {
	servers *servers.List
	monitor ovsdb.Monitor
	level   slog.Level // of reports that the database does not answer
}

// viewer is shown the rows that a follower reads, by one goroutine.
type viewer interface {
	// show is shown a row: one of the first answer of a connection, or a change after it. gone says that the row was deleted.
	show(uuid string, columns []jsontext.Value, first, gone bool)
	// begin says that the first answer is complete: there are no other rows.
	begin()
	// failed says why the database does not answer. The rows of an incomplete first answer are void. It reports whether
	// that is new.
	failed(err error) (isNew bool)
}

var (
	_ viewer = (*portTable)(nil)
	_ viewer = (*chassisTable)(nil)
)

func newFollower(database *servers.List, table string, columns ...string) follower {
	return follower{servers: database, monitor: ovsdb.Monitor{Table: table, Columns: columns}}
}

// run follows the database until ctx is done, at one endpoint after the other.
func (f *follower) run(ctx context.Context, to viewer, log *slog.Logger) {
	retry := servers.MinRetry
	for next := 0; ctx.Err() == nil; next++ {
		endpoint := f.servers.Endpoints[next%len(f.servers.Endpoints)]
		err := f.follow(ctx, endpoint, to, log)
		if ctx.Err() != nil {
			return
		}
		if to.failed(err) {
			log.Log(ctx, f.level, "cannot follow a table of OVN; trying again", "database", f.servers.Database, "table", f.monitor.Table, "endpoint", endpoint, "err", err)
			retry = servers.MinRetry
		}
		select {
		case <-ctx.Done():
		case <-time.After(retry):
		}
		retry = min(2*retry, servers.MaxRetry)
	}
}

// follow follows the database at an endpoint until it fails. Any member of a cluster will do, so that the
// leader has less work, while it is connected to a majority.
func (f *follower) follow(ctx context.Context, endpoint string, to viewer, log *slog.Logger) error {
	dialing, cancel := context.WithTimeout(ctx, f.servers.OpenTimeout())
	defer cancel()
	server, err := f.servers.Dial(dialing, endpoint, servers.Connected)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", endpoint, err)
	}
	defer server.Close()
	conn, err := ovsdb.Dial(dialing, endpoint, f.servers.Database, f.servers.TLS)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", endpoint, err)
	}
	defer func() {
		_ = conn.Close()
		<-conn.Ended() // no Row is shown any more
	}()
	reading, cancel := conn.WhileHeard(ctx, f.servers.ReadTimeout)
	first := true
	monitor := f.monitor
	monitor.Row = func(uuid string, columns []jsontext.Value, gone bool) { to.show(uuid, columns, first, gone) }
	monitor.Begun = func() {
		to.begin()
		first = false
	}
	err = conn.Follow(reading, &monitor)
	cancel()
	if err != nil {
		return fmt.Errorf("follow %s at %s: %w", monitor.Table, endpoint, err)
	}
	log.Info("following a table of OVN", "database", f.servers.Database, "table", monitor.Table, "endpoint", endpoint)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-conn.Ended():
			return conn.Err()
		case <-server.Ended():
			return server.Err()
		case <-time.After(f.servers.Probe):
		}
		probing, cancel := context.WithTimeout(ctx, f.servers.Patience())
		err := server.Probe(probing)
		cancel()
		if err != nil {
			return err
		}
	}
}
