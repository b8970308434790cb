package nodeservices

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestHealthy: health checks fail a minute after repairs began to fail, however long the node was quiet before.
func TestHealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Services{}
		require.False(t, s.healthy(false), "nothing has been in place yet")
		require.True(t, s.healthy(true))
		<-time.After(10 * unwellAfter)
		require.True(t, s.healthy(false))
		<-time.After(unwellAfter / 2)
		require.True(t, s.healthy(false))
		<-time.After(unwellAfter / 2)
		require.False(t, s.healthy(false))
		require.True(t, s.healthy(true))
	})
}
