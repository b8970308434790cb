package odlports

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestUnusedPortsStayForATime(t *testing.T) {
	begun := time.Now()
	at := begun.Add
	u := unused{}
	require.True(t, u.due("a", begun), "another port does not stay")
	require.Zero(t, u.next(begun))

	u.note([]string{"a"}, begun)
	u.note([]string{"a", "b"}, at(20*time.Second))
	require.False(t, u.due("a", at(keepUnused-1)))
	require.True(t, u.due("a", at(keepUnused)))
	require.False(t, u.due("b", at(keepUnused)))
	require.Equal(t, 30*time.Second, u.next(at(30*time.Second)))
	require.Equal(t, retryAfter, u.next(at(2*keepUnused)), "its removal has failed, and is tried again")

	u.note([]string{"b"}, at(30*time.Second)) // a is used again
	u.note([]string{"a", "b"}, at(40*time.Second))
	require.False(t, u.due("a", at(keepUnused)))
	require.Equal(t, 20*time.Second, u.next(at(keepUnused)), "b is first")
}

// A port that was removed needs no further check. One that was not removed is tried again.
func TestUnusedPortsAreRemoved(t *testing.T) {
	begun := time.Now()
	u := unused{}
	u.note([]string{"a"}, begun)
	failed := errors.New("Open vSwitch does not answer")
	require.Equal(t, failed, u.remove("a", func() error { return failed }))
	require.Equal(t, retryAfter, u.next(begun.Add(keepUnused)))
	require.NoError(t, u.remove("a", func() error { return nil }))
	require.Zero(t, u.next(begun.Add(keepUnused)))
}
