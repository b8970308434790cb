package stream

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func newLog(graves int) *Log {
	return NewLog(Config{Identity: "one", Begin: "m:begin", Complete: "m:complete", Graves: graves})
}

func change(stream, key, value string) Change {
	return Change{Stream: stream, Key: key, Name: "m:changed", Content: []byte(value), Gone: value == ""}
}

// told writes events as lines: content or name, and ID.
func told(events []Event) []string {
	var lines []string
	for _, e := range events {
		text := string(e.Content)
		if e.Name != "m:changed" {
			text = e.Name
		}
		lines = append(lines, text+" "+e.ID)
	}
	return lines
}

func ready(s Subscription) bool {
	select {
	case <-s.Ready():
		return true
	default:
		return false
	}
}

func TestSnapshotThenChanges(t *testing.T) {
	l := newLog(0)
	c := l.Open("a", "")
	defer c.Close()
	require.True(t, ready(c))
	require.Empty(t, c.Take(), "nothing is known yet")
	l.Reset(10, []Change{change("a", "1", "x"), change("b", "1", "other")})
	require.True(t, ready(c))
	require.Equal(t, []string{"m:begin ", "x ", "m:complete 10@one"}, told(c.Take()))
	require.Empty(t, c.Take())
	require.False(t, ready(c))

	l.Apply(11, []Change{change("b", "2", "other")})
	require.False(t, ready(c), "not its stream")
	l.Apply(12, []Change{change("a", "2", "y"), change("a", "3", "z")})
	l.Apply(13, []Change{change("a", "1", "xx")})
	require.True(t, ready(c))
	require.Equal(t, []string{"y ", "z ", "xx 13@one"}, told(c.Take()))

	l.Apply(14, []Change{change("a", "3", "")})
	require.Equal(t, []string{" 14@one"}, told(c.Take()))
	require.Equal(t, []string{"a", "b"}, l.Streams())
}

// A slow follower gets each key once, the latest.
func TestSlowFollower(t *testing.T) {
	l := newLog(0)
	l.Reset(1, nil)
	c := l.Open("a", "1@one")
	defer c.Close()
	for i := range int64(1000) {
		l.Apply(i+2, []Change{change("a", fmt.Sprint(i%3), fmt.Sprint(i))})
	}
	require.Equal(t, []string{"997 ", "998 ", "999 1001@one"}, told(c.Take()))
}

func TestGoOnFrom(t *testing.T) {
	l := newLog(2)
	l.Reset(10, []Change{change("a", "1", "x"), change("a", "2", "y")})
	l.Apply(11, []Change{change("a", "3", "z"), change("a", "1", "")})
	snapshot := []string{"m:begin ", "y ", "z ", "m:complete 11@one"}
	for _, c := range []struct {
		name, after string
		want        []string
	}{
		{"the beginning", "", snapshot},
		{"before what is known", "9@one", snapshot},
		{"another datastore", "10@two", snapshot},
		{"no ID of ours", "x", snapshot},
		{"a negative revision", "-5@one", snapshot},
		{"the list", "10@one", []string{"z ", " 11@one"}},
		{"the last change", "11@one", nil},
		{"ahead of this replica", "20@one", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := l.Open("a", c.after)
			defer s.Close()
			require.Equal(t, c.want, told(s.Take()))
		})
	}
	ahead := l.Open("a", "20@one")
	defer ahead.Close()
	l.Apply(20, []Change{change("a", "2", "known")})
	require.Empty(t, ahead.Take(), "it never goes back in time")
	l.Apply(21, []Change{change("a", "2", "news")})
	require.Equal(t, []string{"news 21@one"}, told(ahead.Take()))
}

// A follower that missed removals that are forgotten gets a snapshot; a follower of another
// stream does not.
func TestForgottenRemovals(t *testing.T) {
	l := newLog(2)
	l.Reset(1, []Change{change("a", "1", "x"), change("a", "2", "y"), change("b", "1", "w")})
	slow, other, lively := l.Open("a", "1@one"), l.Open("b", "1@one"), l.Open("a", "1@one")
	defer slow.Close()
	defer other.Close()
	l.Apply(2, []Change{change("a", "1", "")})
	l.Apply(3, []Change{change("a", "1", "back")})
	l.Apply(4, []Change{change("a", "2", "")})
	l.Apply(5, []Change{change("a", "3", "")})
	require.Equal(t, []string{"back ", " ", " 5@one"}, told(slow.Take()), "a removal that was taken back needs no memory")
	l.Apply(6, []Change{change("a", "4", "")})
	require.Equal(t, []string{"m:begin ", "back ", "m:complete 6@one"}, told(lively.Take()))
	require.Equal(t, []string{" 6@one"}, told(slow.Take()))
	require.Empty(t, other.Take())

	// A stream that has nothing and nobody is let go, and what was forgotten of it
	// is not forgotten.
	lively.Close()
	l.Apply(7, []Change{change("b", "1", ""), change("b", "2", "")})
	l.Apply(8, []Change{change("c", "1", ""), change("c", "2", "")})
	l.Apply(9, []Change{change("d", "1", ""), change("d", "2", "")})
	require.NotContains(t, l.feeds, "c")
	late := l.Open("c", "7@one")
	defer late.Close()
	require.Equal(t, []string{"m:begin ", "m:complete 9@one"}, told(late.Take()))
}

func TestResetTellsAll(t *testing.T) {
	l := newLog(0)
	l.Reset(1, []Change{change("a", "1", "x")})
	c, ahead := l.Open("a", "1@one"), l.Open("a", "7@one")
	l.Reset(9, []Change{change("a", "2", "y")})
	for _, s := range []*Cursor{c, ahead} {
		require.Equal(t, []string{"m:begin ", "y ", "m:complete 9@one"}, told(s.Take()))
		s.Close()
	}
	l.Reset(10, nil)
	require.Empty(t, l.feeds)
	require.Empty(t, l.Streams())
}

// Streams with the same event share it: thousands of ports of services are on the streams of all nodes.
func TestSharedEvents(t *testing.T) {
	l := newLog(0)
	l.Reset(10, []Change{change("a", "1", "x"), change("b", "1", "y"), change("c", "1", "y"), change("c", "2", "y")})
	of := func(stream, key string) *entry { return l.feeds[stream].keys[key].Value.(*entry) }
	require.Same(t, of("b", "1"), of("c", "1"))
	require.Equal(t, "x", string(of("a", "1").event.Content))
	require.Equal(t, "2", of("c", "2").key)
	l.Apply(11, []Change{change("a", "1", ""), change("b", "1", ""), change("c", "1", "z")})
	require.Same(t, of("a", "1"), of("b", "1"))
	require.False(t, of("c", "1").gone)
}
