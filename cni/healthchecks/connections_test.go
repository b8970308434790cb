package healthchecks

import (
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// closing is a connection that notes that it was closed.
type closing struct {
	net.Conn
	closed bool
}

func (c *closing) Close() error {
	c.closed = true
	return nil
}

// Connections to one port close each other, and none of another port.
func TestConnectionsOfOnePort(t *testing.T) {
	var all Connections
	first, flood := &closing{}, []*closing{}
	all.note(1, first, http.StateNew)
	for range 3 * maxConnections {
		conn := &closing{}
		flood = append(flood, conn)
		all.note(2, conn, http.StateNew)
	}
	require.False(t, first.closed)
	require.Len(t, all.all, maxConnections)
	for i, conn := range flood {
		require.Equal(t, i < len(flood)-maxConnections+1, conn.closed, i)
	}
	all.note(1, first, http.StateClosed)
	require.Len(t, all.all, maxConnections-1)
}
