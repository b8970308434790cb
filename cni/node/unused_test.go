package node

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Ports of OpenDaylight in elan-instances without interfaces are unused, unless a wanted pair needs the port or the link.
func TestUnusedPorts(t *testing.T) {
	ends := map[string]string{
		"tap00000001-01": linkOf("gone"), "tap00000002-02": linkOf("used"), "tap00000003-03": linkOf("renamed"),
		"tap00000004-04": linkName, "tap00000005-05": "", portOf("ovn"): linkOf("ovn"),
	}
	pairs := []pair{{port: "tap00000002-02", link: linkOf("used")}, {port: "tap00000006-06", link: linkOf("renamed")}}
	require.Equal(t, []string{"tap00000001-01"}, unusedPorts(ends, pairs))
}

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

func TestSooner(t *testing.T) {
	for _, c := range []struct{ a, b, want time.Duration }{{0, 0, 0}, {0, 1, 1}, {2, 0, 2}, {1, 2, 1}, {2, 1, 1}} {
		require.Equal(t, c.want, sooner(c.a, c.b))
	}
}
