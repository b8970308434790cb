package main

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/restconf"
)

func TestPasswd(t *testing.T) {
	admin, err := run(t, "s3cret with blanks \n", "passwd", "admin")
	require.NoError(t, err)
	require.Regexp(t, `^admin:\$2y\$\S+\n$`, admin)
	robot, err := run(t, "other", "passwd", "robot") // no newline at the end
	require.NoError(t, err)

	users, err := restconf.OpenPasswords(file(t, "users", admin+robot), slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	require.True(t, users.Verify(t.Context(), "admin", "s3cret with blanks "))
	require.True(t, users.Verify(t.Context(), "robot", "other"))
	require.False(t, users.Verify(t.Context(), "robot", "s3cret with blanks "))
	require.False(t, users.Verify(t.Context(), "nobody", "other"))
}

func TestPasswdRefuses(t *testing.T) {
	for _, c := range []struct {
		name, stdin string
		args        []string
		says        string
	}{
		{"no user", "x\n", nil, "want one USER"},
		{"two users", "x\n", []string{"a", "b"}, "want one USER"},
		{"colon", "x\n", []string{"a:b"}, "want a name without colon"},
		{"comment", "x\n", []string{"#a"}, "want a name without colon"},
		{"blanks", "x\n", []string{" a"}, "want a name without colon"},
		{"empty", "\n", []string{"a"}, "it is empty"},
		{"nothing", "", []string{"a"}, "it is empty"},
		{"too long", string(make([]byte, 100)), []string{"a"}, "72 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := run(t, c.stdin, append([]string{"passwd"}, c.args...)...)
			require.ErrorContains(t, err, c.says)
		})
	}
}
