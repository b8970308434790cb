package stream

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A follower that begins at a time gets what the Log has learned since, or everything where
// the Log does not reach back to it.
func TestOpenAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLog(2)
		begin := time.Now()
		require.Zero(t, l.Since("a"))
		early := l.OpenAt("a", begin)
		defer early.Close()
		<-time.After(time.Second)
		reset := time.Now()
		l.Reset(10, []Change{change("a", "1", "x")})
		<-time.After(time.Second)
		l.Apply(11, []Change{change("a", "2", "y"), change("b", "1", "z")})
		second := time.Now()
		<-time.After(time.Second)
		l.Apply(12, []Change{change("a", "1", "")})
		third := time.Now()
		all := []string{"m:begin ", "y ", "m:complete 12@one"}
		for _, c := range []struct {
			stream string
			at     time.Time
			want   []string
		}{
			{"a", begin, all},
			{"a", reset, all},
			{"a", reset.Add(1), []string{"y ", " 12@one"}},
			{"a", second, []string{"y ", " 12@one"}},
			{"a", second.Add(1), []string{" 12@one"}},
			{"a", third, []string{" 12@one"}},
			{"a", third.Add(1), nil},
			{"b", third, nil},
			{"c", third, nil},
			{"c", reset, []string{"m:begin ", "m:complete 12@one"}},
		} {
			cursor := l.OpenAt(c.stream, c.at)
			require.Equal(t, c.want, told(cursor.Take()), "%s at %s", c.stream, c.at.Sub(begin))
			cursor.Close()
		}
		require.Equal(t, all, told(early.Take()))
		require.Equal(t, reset, l.Since("a"))

		// Forgotten events cannot be sent again.
		l.Apply(13, []Change{change("a", "3", ""), change("a", "4", "")})
		require.Equal(t, third, l.Since("a"))
		cursor := l.OpenAt("a", second)
		defer cursor.Close()
		require.Equal(t, []string{"m:begin ", "y ", "m:complete 13@one"}, told(cursor.Take()))
		require.Equal(t, reset, l.Since("b"))
	})
}

// Bound marks the events that begin and end a snapshot.
func TestBounds(t *testing.T) {
	l := newLog(0)
	l.Reset(10, []Change{change("a", "1", "x")})
	c := l.Open("a", "")
	defer c.Close()
	events := c.Take()
	require.Len(t, events, 3)
	for i, bound := range []bool{true, false, true} {
		require.Equal(t, bound, events[i].Bound)
	}
}
