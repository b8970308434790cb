package ovs

import (
	"testing"

	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/stretchr/testify/require"
)

// closed is a client whose server has closed the connection: it has no local copy.
type closed struct{ client.Client }

func (closed) Cache() *cache.TableCache { return nil }

// TestMonitorOfClosedConnection: a server that closes the connection at once does not stop the agent.
func TestMonitorOfClosedConnection(t *testing.T) {
	require.ErrorIs(t, (&session{client: closed{}}).monitor(t.Context(), nil), errClosed)
}
