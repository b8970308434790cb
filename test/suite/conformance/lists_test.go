package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestListsOfTheTree(t *testing.T) {
	all := map[string][]string{}
	for backend := range listFiles {
		l, err := readLists(backend)
		require.NoError(t, err)
		all[backend] = l.names()
		files := map[string]string{}
		for _, name := range l.names() {
			file := logName(name)
			require.Empty(t, files[file], "%s and %s have one log", name, files[file])
			require.Less(t, len(file), 256, "the name of the log of %s", name)
			files[file] = name
		}
	}
	require.Equal(t, all[onOVN], all[onODL], "the lists of both backends have the tests of the suite")
}

// TestMustPass: on a cluster whose first family is IPv6, the tests that need both families must pass.
func TestMustPass(t *testing.T) {
	l, err := readLists(onOVN)
	require.NoError(t, err)
	require.Equal(t, l.passing, l.mustPass(false))
	six := l.mustPass(true)
	require.Len(t, six, 20)
	for _, name := range six {
		require.Contains(t, l.passing, name)
		require.Contains(t, name, "IPv6DualStack")
	}
}

func TestPassingIsParsed(t *testing.T) {
	for _, c := range []struct{ name, text, err string }{
		{"good", "[sig-network] A\n[sig-network] B\n", ""},
		{"of another group", "[sig-node] A\n", "is not a test of"},
		{"empty line", "[sig-network] A\n\n[sig-network] B\n", "line 2"},
		{"not sorted", "[sig-network] B\n[sig-network] A\n", "line 2: "},
		{"twice", "[sig-network] A\n[sig-network] A\n", "there twice"},
	} {
		t.Run(c.name, func(t *testing.T) {
			names, err := parsePassing(c.text)
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, []string{"[sig-network] A", "[sig-network] B"}, names)
		})
	}
}

func TestExcludedIsParsed(t *testing.T) {
	for _, c := range []struct{ name, text, err string }{
		{"good", "# It is not\n# served.\n[sig-network] A\n[sig-network] B\n\n# Another reason.\n[sig-network] C\n", ""},
		{"no reason", "[sig-network] A\n", "has no reason"},
		{"no test", "# A reason.\n\n# Another.\n[sig-network] A\n", "or no test"},
		{"twice", "# A reason.\n[sig-network] A\n\n# Another.\n[sig-network] A\n", "is there twice"},
		{"of another group", "# A reason.\n[sig-node] A\n", "is not a test of"},
		{"reason after a test", "# A reason.\n[sig-network] A\n# Another.\n[sig-network] B\n", "is not a test of"},
	} {
		t.Run(c.name, func(t *testing.T) {
			excluded, err := parseExcluded(c.text)
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, map[string]string{
				"[sig-network] A": "It is not served.", "[sig-network] B": "It is not served.", "[sig-network] C": "Another reason.",
			}, excluded)
		})
	}
}

func TestListsAreCompared(t *testing.T) {
	l := lists{passing: []string{"a", "b"}, excluded: map[string]string{"c": "why"}}
	require.NoError(t, l.compare([]string{"a", "b", "c"}))
	err := l.compare([]string{"a", "c", "d"})
	require.ErrorContains(t, err, "in neither list: d")
	require.ErrorContains(t, err, "not in the suite any more: b")
}
