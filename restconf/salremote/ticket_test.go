package salremote

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A caller that asks for many tickets displaces the oldest tickets of others, and not all.
// Expired tickets do not count.
func TestOldestTicketsGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all tickets
		stream := httptest.NewRequest(http.MethodGet, "/stream", http.NoBody)
		stream.Header.Set("Authorization", "Basic x")
		good := func(name string) bool {
			r := httptest.NewRequest(http.MethodGet, "/stream?"+ticketParameter+"="+name, http.NoBody)
			r.Header.Set("Connection", "Upgrade")
			r.Header.Set("Upgrade", "websocket")
			return all.Redeem(r).Header.Get("Authorization") != ""
		}
		owners := 0
		owner := func() string { // returns another user at each call
			owners++
			return fmt.Sprint(owners)
		}
		first, second, third := all.issue(stream, owner()), all.issue(stream, owner()), all.issue(stream, owner())
		for range maxTickets - 2 {
			all.issue(stream, owner())
		}
		require.False(t, good(first))
		require.True(t, good(second))
		require.False(t, good(second), "once")
		all.issue(stream, owner())
		require.True(t, good(third))
		require.LessOrEqual(t, len(all.given), maxTickets)
		require.LessOrEqual(t, len(all.order), maxTickets)

		late := all.issue(stream, owner())
		<-time.After(ticketLife + 1)
		require.False(t, good(late))
		last := all.issue(stream, owner())
		require.Len(t, all.given, 1)
		require.Len(t, all.order, 1)
		require.True(t, good(last))
	})
}

// The tickets of one caller displace no tickets of others.
func TestTicketsOfOneAreBounded(t *testing.T) {
	var all tickets
	stream := httptest.NewRequest(http.MethodGet, "/stream", http.NoBody)
	theirs := all.issue(stream, "ann")
	for range 2 * maxTickets {
		all.issue(stream, "bob")
	}
	require.Contains(t, all.given, theirs)
	require.Len(t, all.given, maxOwnTickets+1)
	require.LessOrEqual(t, len(all.order), maxTickets)
}
