package restconf

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"
)

func writeUsers(t *testing.T, path string, users map[string]string) {
	t.Helper()
	lines := []string{"# users"}
	for user, password := range users {
		hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
		require.NoError(t, err)
		lines = append(lines, user+":"+string(hash))
	}
	require.NoError(t, os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600))
}

func TestPasswords(t *testing.T) {
	path := filepath.Join(t.TempDir(), "users")
	writeUsers(t, path, map[string]string{"ann": "one", "bob": "two"})
	var log bytes.Buffer
	p, err := OpenPasswords(path, slog.New(slog.NewTextHandler(&log, nil)))
	require.NoError(t, err)
	for range 2 { // the second time from memory
		require.True(t, p.Verify(t.Context(), "ann", "one"))
		require.True(t, p.Verify(t.Context(), "bob", "two"))
		require.False(t, p.Verify(t.Context(), "ann", "two"))
		require.False(t, p.Verify(t.Context(), "eve", "one"))
		require.False(t, p.Verify(t.Context(), "", ""))
	}
	begin := time.Now()
	for range 1000 {
		require.True(t, p.Verify(t.Context(), "ann", "one"))
	}
	require.Less(t, time.Since(begin), time.Second)

	// A changed file counts, and takes back what it no longer grants.
	writeUsers(t, path, map[string]string{"ann": "three"})
	require.NoError(t, os.Chtimes(path, time.Time{}, time.Now().Add(time.Hour)))
	require.Eventually(t, func() bool { return !p.Verify(t.Context(), "ann", "one") }, 5*time.Second, 50*time.Millisecond)
	require.True(t, p.Verify(t.Context(), "ann", "three"))
	require.False(t, p.Verify(t.Context(), "bob", "two"))

	// A broken one does not.
	require.NoError(t, os.WriteFile(path, []byte("ann:plain\n"), 0o600))
	require.Eventually(t, func() bool {
		require.True(t, p.Verify(t.Context(), "ann", "three"))
		return strings.Contains(log.String(), "no bcrypt hash")
	}, 5*time.Second, 50*time.Millisecond)
	for _, secret := range []string{"one", "three", "plain", "$2y$"} {
		require.NotContains(t, log.String(), `"`+secret)
	}
}

func TestPasswordFilesThatAreRefused(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct{ content, want string }{
		"empty":    {"", "names no user"},
		"comments": {"# nobody\n\n", "names no user"},
		"no colon": {"ann\n", `line 1 is not "user:hash"`},
		"no user":  {":$2y$10$abc\n", `line 1 is not "user:hash"`},
		"clear":    {"\nann:secret\n", "line 2 has no bcrypt hash"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(dir, name)
			require.NoError(t, os.WriteFile(path, []byte(c.content), 0o600))
			_, err := OpenPasswords(path, slog.New(slog.DiscardHandler))
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), "secret")
		})
	}
	_, err := OpenPasswords(filepath.Join(dir, "none"), slog.New(slog.DiscardHandler))
	require.ErrorIs(t, err, os.ErrNotExist)
	hash, err := HashPassword("secret")
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(hash, "$2y$10$"))
	require.NoError(t, bcrypt.CompareHashAndPassword([]byte(hash), []byte("secret")))
	_, err = HashPassword("")
	require.Error(t, err)
	_, err = HashPassword(strings.Repeat("x", 73))
	require.Error(t, err)
}
