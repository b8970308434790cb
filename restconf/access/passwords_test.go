package access

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"
)

func TestPasswords(t *testing.T) {
	argon, err := HashPassword("three", Argon2id)
	require.NoError(t, err)
	b := newBed(t, Config{UsersFile: file(t, "# users\n\n"+line(t, "ann", "writer", "one")+line(t, "bob", "reader", "two")+"cy:reader:"+argon+"\n")})
	for range 2 { // the second time from memory
		for _, c := range []struct {
			name, password string
			role           Role
		}{{"ann", "one", Writer}, {"bob", "two", Reader}, {"cy", "three", Reader}} {
			who, err := b.login(c.name, c.password, "127.0.0.1")
			require.NoError(t, err)
			require.Equal(t, Identity{Name: c.name, Role: c.role, By: ByPassword}, who)
		}
		for _, wrong := range [][2]string{{"ann", "two"}, {"eve", "one"}, {"", ""}, {"an", "none"}} {
			_, err := b.login(wrong[0], wrong[1], "127.0.0.1")
			var denied *DeniedError
			require.ErrorAs(t, err, &denied)
		}
	}
	require.Equal(t, 8.0, b.metric("coe_bridge_logins_failed_total", "password"))
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
	require.NoError(t, err)
	_, err = b.Authenticate(r)
	require.ErrorIs(t, err, ErrNoCredentials)
	require.NotContains(t, b.log.String(), "user=eve", "who typed a password in the place of a name finds it in no log")
}

// counted counts how often a hash is computed.
type counted struct {
	hash
	times atomic.Int32
}

func (c *counted) matches(password string) bool {
	c.times.Add(1)
	return c.hash.matches(password)
}

// However many requests come, a right password is hashed by those that come first,
// and then no more until the file changes.
func TestPasswordIsHashedOnce(t *testing.T) {
	path := file(t, line(t, "ann", "writer", "one"))
	b := newBed(t, Config{UsersFile: path})
	p := b.Authenticator.(*passwords)
	ann := p.users.Load().byName["ann"]
	count := &counted{hash: ann.hash}
	ann.hash = count
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			for range 10 {
				if !b.good("ann", "one") {
					t.Error("refused")
				}
			}
		})
	}
	all.Wait()
	hashed := count.times.Load()
	require.LessOrEqual(t, hashed, int32(cap(p.slots)), "those that came first")
	require.NotContains(t, string(ann.verified.Load()[:]), "one")

	// Another password does not take the place of what is known.
	require.False(t, b.good("ann", "two"))
	require.True(t, b.good("ann", "one"))
	require.Equal(t, hashed+1, count.times.Load())

	write(t, path, line(t, "ann", "reader", "three"))
	b.eventually(func() bool { return !b.good("ann", "one") }, "what was verified is forgotten")
}

// An unknown name takes a hash as a known one does, and always the same one.
func TestUnknownNamesTakeAsLong(t *testing.T) {
	b := newBed(t, Config{UsersFile: file(t, line(t, "ann", "writer", "one")+line(t, "bob", "writer", "two"))})
	p := b.Authenticator.(*passwords)
	count := &counted{hash: p.users.Load().list[0].hash}
	for _, u := range p.users.Load().list {
		u.hash = count
	}
	require.False(t, b.good("eve", "one"))
	require.EqualValues(t, 1, count.times.Load())
	require.Same(t, p.users.Load().decoy(p.secret, "eve"), p.users.Load().decoy(p.secret, "eve"))
}

// Only a guesser must wait: not callers who are known, not
// other users behind the same address, not the same user elsewhere.
func TestGuessing(t *testing.T) { synctest.Test(t, testGuessing) }

func testGuessing(t *testing.T) {
	users := line(t, "ann", "writer", "one") + line(t, "bob", "writer", "two")
	b := newBed(t, Config{UsersFile: file(t, users)})
	_, err := b.login("ann", "one", "192.0.2.1")
	require.NoError(t, err)
	guess := func(name, from string) (denied, waits int) {
		for i := range 100 {
			_, err := b.login(name, fmt.Sprint("guess", i), from)
			var limited *LimitedError
			if !isLimited(err, &limited) {
				denied++
				continue
			}
			waits++
			require.Positive(t, limited.After)
			require.LessOrEqual(t, limited.After, pairBudget.every)
		}
		return denied, waits
	}
	denied, waits := guess("ann", "198.51.100.1")
	require.LessOrEqual(t, denied, pairBudget.burst+1)
	require.Positive(t, waits)
	require.Equal(t, float64(waits), b.metric("coe_bridge_logins_failed_total", "limited"))
	_, err = b.login("ann", "one", "198.51.100.1")
	require.ErrorContains(t, err, "too many logins have failed", "the right guess is not told from a wrong one")

	_, err = b.login("ann", "one", "192.0.2.1")
	require.NoError(t, err, "who is known")
	_, err = b.login("bob", "two", "198.51.100.1")
	require.NoError(t, err, "another user behind the address")

	// Verified passwords are forgotten with the file; their addresses are not.
	for i := range userBudget.burst {
		_, _ = b.login("ann", fmt.Sprint("another guess", i), fmt.Sprint("203.0.113.", i%10))
	}
	p := b.Authenticator.(*passwords)
	before := p.users.Load()
	write(t, b.cfg.UsersFile, users+"# changed\n")
	b.eventually(func() bool { return p.users.Load() != before }, "the file is read again")
	_, err = b.login("ann", "one", "192.0.2.9")
	require.ErrorContains(t, err, "too many logins have failed", "many addresses guess at one user")
	_, err = b.login("ann", "one", "192.0.2.1")
	require.NoError(t, err, "the user where they came from before")
}

// A removed user is denied even if guesses at the name are limited; a
// name that never was in it is as any other.
func TestWhoIsTakenOutIsNotLimited(t *testing.T) { synctest.Test(t, testWhoIsTakenOutIsNotLimited) }

func testWhoIsTakenOutIsNotLimited(t *testing.T) {
	users := line(t, "ann", "writer", "one")
	b := newBed(t, Config{UsersFile: file(t, users+line(t, "bob", "reader", "two"))})
	_, err := b.login("bob", "two", "192.0.2.1")
	require.NoError(t, err)
	p := b.Authenticator.(*passwords)
	before := p.users.Load()
	for i := range 2 * pairBudget.burst {
		_, _ = b.login("bob", fmt.Sprint("guess", i), "192.0.2.1")
		_, _ = b.login("eve", fmt.Sprint("guess", i), "192.0.2.1")
	}
	_, err = b.login("bob", "two", "192.0.2.1")
	require.ErrorContains(t, err, "too many logins have failed", "as long as they are in it")
	write(t, b.cfg.UsersFile, users)
	b.eventually(func() bool { return p.users.Load() != before }, "the file is read again")
	_, err = b.login("bob", "two", "192.0.2.1")
	require.ErrorIs(t, err, errWrong)
	_, err = b.login("eve", "two", "192.0.2.1")
	require.ErrorContains(t, err, "too many logins have failed")
}

// Many guesses at once do not outrun the count.
func TestGuessingAtOnce(t *testing.T) {
	b := newBed(t, Config{UsersFile: file(t, line(t, "ann", "writer", "one"))})
	p := b.Authenticator.(*passwords)
	ann := p.users.Load().byName["ann"]
	count := &counted{hash: ann.hash}
	ann.hash = count
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() { _ = b.good("ann", fmt.Sprint("guess", i)) })
	}
	all.Wait()
	require.LessOrEqual(t, count.times.Load(), int32(pairBudget.burst+cap(p.slots)))
}

// A robot that has not heard of a new password does not guess: it costs no hash and
// locks out nobody who has its name and address.
func TestAnOldPasswordIsNoGuessing(t *testing.T) {
	path := file(t, line(t, "robot", "writer", "new"))
	b := newBed(t, Config{UsersFile: path})
	robot := b.Authenticator.(*passwords).users.Load().byName["robot"]
	count := &counted{hash: robot.hash}
	robot.hash = count
	for range 1000 {
		_, err := b.login("robot", "old", "192.0.2.1")
		require.ErrorIs(t, err, errWrong)
	}
	_, err := b.login("robot", "new", "192.0.2.1")
	require.NoError(t, err)
	require.EqualValues(t, 2, count.times.Load())
	require.Equal(t, 1000.0, b.metric("coe_bridge_logins_failed_total", "password"))
	require.Equal(t, 1, strings.Count(b.log.String(), "login failed"))

	write(t, path, line(t, "robot", "writer", "old"))
	b.eventually(func() bool { return b.good("robot", "old") }, "it is right again")
}

func isLimited(err error, limited **LimitedError) bool {
	var ok bool
	*limited, ok = err.(*LimitedError) //nolint:errorlint // it is made here, and not wrapped
	return ok
}

func TestAddressOf(t *testing.T) {
	for from, want := range map[string]string{
		"192.0.2.1:80": "192.0.2.1/32", "[::ffff:192.0.2.1]:80": "192.0.2.1/32",
		"[2001:db8:1:2:3::4]:80": "2001:db8:1:2::/64", "[fe80::1%eth0]:80": "fe80::/64", "@": "invalid Prefix",
	} {
		require.Equal(t, want, AddressOf(from).String(), from)
	}
}

func TestUsersFilesThatAreRefused(t *testing.T) {
	good := line(t, "ann", "writer", "one")
	for name, c := range map[string]struct{ content, says string }{
		"empty":         {"", "names no user"},
		"comments":      {"# nobody\n\n", "names no user"},
		"no colon":      {"ann\n", `line 1 is not "user:role:hash"`},
		"no user":       {":writer:$2y$10$abc\n", `line 1 is not "user:role:hash"`},
		"no role":       {good + "bob:$2y$10$abcdefghijklmnopqrstuuJ1pgqcGVnhpsZUNbBkGhXqCuzAHOFDq\n", "line 2 has no role: write bob:reader:… or bob:writer:…"},
		"unknown role":  {"ann:root:$2y$10$abc\n", "want reader or writer between user and hash"},
		"twice":         {good + good, "line 2 names user ann again"},
		"clear":         {"\nann:writer:secret\n", "line 2 has no bcrypt or argon2id hash: make it with coe-bridge passwd"},
		"costs much":    {"ann:writer:$2y$31$abcdefghijklmnopqrstuuJ1pgqcGVnhpsZUNbBkGhXqCuzAHOFDq\n", "cost 31: want 16 at most"},
		"argon2i":       {"ann:writer:$argon2i$v=19$m=64,t=1,p=1$c29tZXNhbHQ$c29tZXNhbHRzb21lc2FsdA\n", "no bcrypt or argon2id hash"},
		"argon version": {"ann:writer:$argon2id$v=16$m=64,t=1,p=1$c29tZXNhbHQ$c29tZXNhbHRzb21lc2FsdA\n", "argon2id hash that is not"},
		"argon short":   {"ann:writer:$argon2id$v=19$m=64,t=1,p=1$c29tZXNhbHQ$c29t\n", "argon2id hash that is not"},
		"argon zero":    {"ann:writer:$argon2id$v=19$m=64,t=0,p=1$c29tZXNhbHQ$c29tZXNhbHRzb21lc2FsdA\n", "argon2id hash that is not"},
		"argon text":    {"ann:writer:$argon2id$v=19$m=x$c29tZXNhbHQ$c29tZXNhbHRzb21lc2FsdA\n", "argon2id hash that is not"},
		"argon large":   {"ann:writer:$argon2id$v=19$m=4194304,t=1,p=1$c29tZXNhbHQ$c29tZXNhbHRzb21lc2FsdA\n", "want m=262144 KiB and t=32 at most"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parseUsers([]byte(c.content))
			require.ErrorContains(t, err, c.says)
			require.NotContains(t, err.Error(), "secret")
		})
	}
}

// The hashes of others: htpasswd -nbB, and the argon2 command of the reference
// implementation.
func TestHashesOfOthers(t *testing.T) {
	for text, password := range map[string]string{
		"$2y$05$CCCCCCCCCCCCCCCCCCCCC.VGOzA784oUp/Z0DY336zx7pLYAy0lwK":                         "U*U*",
		"$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4": "password",
	} {
		h, err := parseHash(text)
		require.NoError(t, err)
		require.True(t, h.matches(password), text)
		require.False(t, h.matches(password+"x"), text)
	}
}

func TestHashPassword(t *testing.T) {
	for algorithm, prefix := range map[string]string{Bcrypt: "$2y$10$", Argon2id: "$argon2id$v=19$m=19456,t=2,p=1$"} {
		text, err := HashPassword("secret", algorithm)
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(text, prefix), text)
		h, err := parseHash(text)
		require.NoError(t, err)
		require.True(t, h.matches("secret"))
		require.False(t, h.matches("Secret"))
		_, err = HashPassword("", algorithm)
		require.ErrorContains(t, err, "it is empty")
	}
	_, err := HashPassword(strings.Repeat("x", 73), Bcrypt)
	require.ErrorContains(t, err, "72 bytes")
	_, err = HashPassword("secret", "md5")
	require.ErrorContains(t, err, "want bcrypt or argon2id")

	// bcrypt ignores further bytes, so a longer password is refused.
	long := strings.Repeat("x", maxBcryptLen)
	text, err := bcrypt.GenerateFromPassword([]byte(long), bcrypt.MinCost)
	require.NoError(t, err)
	require.True(t, bcryptHash(text).matches(long))
	require.False(t, bcryptHash(text).matches(long+"y"))
}

func BenchmarkKnownPassword(b *testing.B) {
	bed := newBed(b, Config{UsersFile: file(b, line(b, "ann", "writer", "one"))})
	require.True(b, bed.good("ann", "one"))
	r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, "/", http.NoBody)
	require.NoError(b, err)
	r.SetBasicAuth("ann", "one")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := bed.Authenticate(r); err != nil {
			b.Fatal(err)
		}
	}
}
