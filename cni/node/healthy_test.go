package node

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestHealthy: health checks fail a minute after repairs began to fail, however long the node was quiet before.
func TestHealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &Node{}
		require.False(t, n.healthy(false), "nothing has been in place yet")
		require.True(t, n.healthy(true))
		<-time.After(10 * unwellAfter)
		require.True(t, n.healthy(false))
		<-time.After(unwellAfter / 2)
		require.True(t, n.healthy(false))
		<-time.After(unwellAfter / 2)
		require.False(t, n.healthy(false))
		require.True(t, n.healthy(true))
	})
}
