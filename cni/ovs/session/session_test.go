package session

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"
	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cni/ovs/vswitch"
)

// closed is a client whose server has closed the connection: it has no local copy.
type closed struct{ client.Client }

func (closed) Cache() *cache.TableCache { return nil }

// TestMonitorOfClosedConnection: a server that closes the connection at once does not stop the agent.
func TestMonitorOfClosedConnection(t *testing.T) {
	require.ErrorIs(t, (&Session{client: closed{}}).monitor(t.Context(), 0, nil), errClosed)
}

// silent is a client whose server answers nothing. Echo of libovsdb must not be called: it races with a late answer.
type silent struct{ client.Client }

func (silent) DisconnectNotify() chan struct{} { return nil }

func (silent) Transact(ctx context.Context, _ ...ovsdb.Operation) ([]ovsdb.OperationResult, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestProbeWithoutAnswer: a probe that is not answered ends the session.
func TestProbeWithoutAnswer(t *testing.T) {
	one := &Session{client: silent{}}
	require.ErrorIs(t, one.Watch(t.Context(), time.Millisecond, time.Millisecond, func(ctx context.Context) error {
		_, err := one.Transact(ctx)
		return err
	}), context.DeadlineExceeded)
}

// interrupted is a client whose caller ends during the request for the copy of the tables.
type interrupted struct {
	client.Client
	copied *cache.TableCache
	end    context.CancelFunc
	ended  chan error // the state of the request then
}

func (c *interrupted) Cache() *cache.TableCache { return c.copied }

func (*interrupted) NewMonitor(...client.MonitorOption) *client.Monitor { return &client.Monitor{} }

func (c *interrupted) Monitor(ctx context.Context, _ *client.Monitor) (client.MonitorCookie, error) {
	c.end()
	c.ended <- ctx.Err()
	return client.MonitorCookie{}, context.Canceled
}

// TestMonitorIsNotInterrupted: the end of a session that has just begun does not end the request for the copy, because Monitor of libovsdb
// races with a late answer.
func TestMonitorIsNotInterrupted(t *testing.T) {
	file, err := os.Open("../vswitch/vswitch.ovsschema")
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	schema, err := ovsdb.SchemaFromFile(file)
	require.NoError(t, err)
	tables, err := vswitch.FullDatabaseModel()
	require.NoError(t, err)
	all, errs := model.NewDatabaseModel(schema, tables)
	require.Empty(t, errs)
	ctx, end := context.WithCancel(t.Context())
	c := &interrupted{end: end, ended: make(chan error, 1)}
	c.copied, err = cache.NewTableCache(all, nil, nil)
	require.NoError(t, err)
	require.ErrorIs(t, (&Session{client: c}).monitor(ctx, time.Minute, nil), context.Canceled)
	require.NoError(t, <-c.ended)
}
