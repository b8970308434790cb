package main

import (
	"log/slog"
	"net/http"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/restconf/access"
)

func TestPasswd(t *testing.T) {
	admin, err := run(t, "s3cret with blanks \n", "passwd", "admin")
	require.NoError(t, err)
	require.Regexp(t, `^admin:writer:\$2y\$\S+\n$`, admin)
	robot, err := run(t, "other", "passwd", "--role", "reader", "--hash", "argon2id", "robot") // no newline at the end
	require.NoError(t, err)
	require.Regexp(t, `^robot:reader:\$argon2id\$\S+\n$`, robot)

	users, err := access.Open(access.Config{UsersFile: file(t, "users", admin+robot)}, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	require.NoError(t, err)
	for _, c := range []struct {
		user, password string
		role           access.Role
	}{
		{"admin", "s3cret with blanks ", access.Writer}, {"robot", "other", access.Reader},
		{"robot", "s3cret with blanks ", 0}, {"nobody", "other", 0},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
		require.NoError(t, err)
		r.SetBasicAuth(c.user, c.password)
		who, err := users.Authenticate(r)
		require.Equal(t, c.role, who.Role)
		require.Equal(t, c.role == 0, err != nil)
	}
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
		{"role", "x\n", []string{"a", "--role", "root"}, `role "root": want reader or writer`},
		{"hash", "x\n", []string{"a", "--hash", "md5"}, `--hash "md5": want bcrypt or argon2id`},
		{"too long", string(make([]byte, 100)), []string{"a"}, "72 bytes; take a shorter one, or --hash argon2id"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := run(t, c.stdin, append([]string{"passwd"}, c.args...)...)
			require.ErrorContains(t, err, c.says)
		})
	}
}
