package stream

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// names are the names of a group of events, and the ID of the last.
func names(events []Event) (all []string, id string) {
	for _, e := range events {
		all = append(all, e.Name)
		id = e.ID
	}
	return all, id
}

// TestHistories: an ID is gone on from if its history was in force at its revision, and
// gets a snapshot otherwise.
func TestHistories(t *testing.T) {
	for _, c := range []struct {
		name, after string
		snapshot    bool
		lost        int
	}{
		{"the first history", "11@one.a", false, 0},
		{"the second history", "21@one.b", false, 0},
		{"another replica is ahead", "99@one.b", false, 0},
		{"the first history had ended by then", "21@one.a", true, 1},
		{"the first history, ahead", "99@one.a", true, 1},
		{"the second history had not begun", "11@one.b", true, 1},
		{"an unknown history", "11@one.c", true, 1},
		{"before all that is kept", "5@one.c", true, 0},
		{"of an older release", "11@one", true, 0},
		{"another datastore", "11@two.a", true, 0},
		{"nonsense", "x.y@z", true, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			lost := 0
			l := NewLog(Config{Identity: "one", Begin: "m:begin", Complete: "m:complete", Lost: func(string, int64) { lost++ }})
			l.Turn(10, "a")
			l.Reset(10, []Change{change("a", "1", "x")})
			l.Turn(20, "b")
			l.Apply(30, []Change{change("a", "2", "y")})
			group := l.Open("a", c.after).Take()
			if c.snapshot {
				all, id := names(group)
				require.Contains(t, all, "m:begin")
				require.Equal(t, "30@one.b", id)
			} else {
				for _, e := range group {
					require.False(t, e.Bound)
				}
			}
			require.Equal(t, c.lost, lost)
		})
	}
}

// TestFormats: an ID of another format gets a snapshot, which is never older than the ID. Nothing was lost.
func TestFormats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLog(Config{Identity: "one", Format: "2", Begin: "m:begin", Complete: "m:complete", Lost: func(string, int64) { t.Error("lost") }})
		l.Turn(10, "a")
		l.Reset(10, []Change{change("a", "1", "x")})
		ctx, cancel := context.WithCancel(t.Context())
		go l.Settle(ctx, func(context.Context) (string, error) { return "a", nil })
		require.Empty(t, l.Open("a", "10@one~2.a").Take())
		for _, former := range []string{"10@one.a", "10@one~1.a"} {
			all, id := names(l.Open("a", former).Take())
			require.Equal(t, []string{"m:begin", "m:changed", "m:complete"}, all)
			require.Equal(t, "10@one~2.a", id)
		}
		ahead := l.Open("a", "12@one.a")
		for _, revision := range []int64{11, 12} {
			<-ahead.Ready()
			require.Empty(t, ahead.Take())
			l.doubt()
			synctest.Wait()
			require.Empty(t, ahead.Take())
			l.Apply(revision, nil)
		}
		<-ahead.Ready()
		all, id := names(ahead.Take())
		require.Equal(t, []string{"m:begin", "m:changed", "m:complete"}, all)
		require.Equal(t, "12@one~2.a", id)
		cancel()
		synctest.Wait()
	})
}

// TestSettle: a follower that is ahead, of an unknown history, gets nothing until the
// datastore has answered. If the history is of a restored datastore, it gets a snapshot.
func TestSettle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := 0
		l := NewLog(Config{Identity: "one", Begin: "m:begin", Complete: "m:complete", Lost: func(string, int64) { lost++ }})
		l.Turn(10, "a")
		l.Reset(10, nil)
		ctx, cancel := context.WithCancel(t.Context())
		history := "b" // which the Log has not reached
		go l.Settle(ctx, func(context.Context) (string, error) { return history, nil })
		ahead, before := l.Open("a", "99@one.b"), l.Open("a", "99@one.z")
		for _, c := range []*Cursor{ahead, before} {
			<-c.Ready()
			require.Empty(t, c.Take())
		}
		<-time.After(3 * askAgain)
		synctest.Wait()
		require.Zero(t, lost)
		l.Turn(98, "b")
		<-time.After(2 * askAgain)
		synctest.Wait()
		<-before.Ready()
		all, _ := names(before.Take())
		require.Equal(t, []string{"m:begin", "m:complete"}, all)
		<-ahead.Ready()
		require.Empty(t, ahead.Take())
		l.Apply(100, []Change{change("a", "1", "x")})
		_, id := names(ahead.Take())
		require.Equal(t, "100@one.b", id)
		require.Equal(t, 1, lost)
		cancel()
		synctest.Wait()
	})
}
