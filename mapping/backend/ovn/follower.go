package ovn

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/coe-bridge/coe-bridge/mapping/backend/ovn/ovsdb"
)

// follower follows a table of a database.
type follower struct {
	database  string
	endpoints []string
	monitor   ovsdb.Monitor
	level     slog.Level // of reports that the database does not answer
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

func newFollower(database string, endpoints []string, table string, columns ...string) follower {
	return follower{database: database, endpoints: endpoints, monitor: ovsdb.Monitor{Table: table, Columns: columns}}
}

// run follows the database until ctx is done, at one endpoint after the other.
func (f *follower) run(ctx context.Context, to viewer, cfg *Config, log *slog.Logger) {
	retry := minRetry
	for next := 0; ctx.Err() == nil; next++ {
		endpoint := f.endpoints[next%len(f.endpoints)]
		err := f.follow(ctx, endpoint, to, cfg, log)
		if ctx.Err() != nil {
			return
		}
		if to.failed(err) {
			log.Log(ctx, f.level, "cannot follow a table of OVN; trying again", "database", f.database, "table", f.monitor.Table, "endpoint", endpoint, "err", err)
			retry = minRetry
		}
		pause(ctx, retry)
		retry = min(2*retry, maxRetry)
	}
}

// follow follows the database at an endpoint until it fails. Any member of a cluster will do, so that the
// leader has less work, while it is connected to a majority.
func (f *follower) follow(ctx context.Context, endpoint string, to viewer, cfg *Config, log *slog.Logger) error {
	dialing, cancel := context.WithTimeout(ctx, cfg.openTimeout(len(f.endpoints)))
	defer cancel()
	server, err := dialServer(dialing, endpoint, f.database, connected, cfg)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", endpoint, err)
	}
	defer server.close()
	conn, err := ovsdb.Dial(dialing, endpoint, f.database, cfg.TLS)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", endpoint, err)
	}
	defer func() {
		_ = conn.Close()
		<-conn.Ended() // no Row is shown any more
	}()
	reading, cancel := conn.WhileHeard(ctx, cfg.ReadTimeout)
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
	log.Info("following a table of OVN", "database", f.database, "table", monitor.Table, "endpoint", endpoint)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-conn.Ended():
			return conn.Err()
		case <-server.conn.Ended():
			return server.conn.Err()
		case <-time.After(cfg.Probe):
		}
		probing, cancel := context.WithTimeout(ctx, cfg.patience(len(f.endpoints)))
		err := server.probe(probing)
		cancel()
		if err != nil {
			return err
		}
	}
}
