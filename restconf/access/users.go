package access

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
)

// users are the content of a users file, and the passwords that were right or wrong.
type users struct {
	byName map[string]*user
	list   []*user

	mu    sync.Mutex
	wrong recent[mark, struct{}]
}

// isWrong reports whether these are a name and a password that were found wrong not
// long ago.
func (u *users) isWrong(m *mark) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	_, found := u.wrong.find(*m)
	return found
}

func (u *users) setWrong(m *mark) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.wrong.put(*m, struct{}{})
}

// user is a line of the file.
type user struct {
	role Role
	hash hash
	// verified is the mark of the password that was found right, until the file
	// changes.
	verified atomic.Pointer[mark]
}

// mark is a keyed digest of a name and a password.
type mark [sha256.Size]byte

// markOf needs no more than a digest of the secret and what it keys: nobody is shown one.
func markOf(secret []byte, name, password string) *mark {
	text := make([]byte, 0, 256)
	text = append(text, secret...)
	text = binary.AppendUvarint(text, uint64(len(name)))
	text = append(append(text, name...), password...)
	m := mark(sha256.Sum256(text))
	return &m
}

// known reports whether this is the password that was found right before.
func (u *user) known(m *mark) bool {
	was := u.verified.Load()
	return was != nil && hmac.Equal(was[:], m[:])
}

// decoy is the user whose hash an unknown name is compared with, always the same
// for a name: so it takes as long as for a name that is known.
func (u *users) decoy(secret []byte, name string) *user {
	m := markOf(secret, name, "")
	return u.list[binary.BigEndian.Uint64(m[:])%uint64(len(u.list))]
}

// parseUsers reads lines "user:role:hash".
func parseUsers(content []byte) (*users, error) {
	u := &users{byName: map[string]*user{}}
	for n, line := range textLines(content) {
		name, rest, _ := strings.Cut(line, ":")
		role, hash, complete := strings.Cut(rest, ":")
		switch {
		case name == "" || rest == "":
			return nil, fmt.Errorf("line %d is not \"user:role:hash\"", n)
		case u.byName[name] != nil:
			return nil, fmt.Errorf("line %d names user %s again", n, name)
		case !complete:
			return nil, fmt.Errorf("line %d has no role: write %s:reader:… or %s:writer:…", n, name, name)
		}
		one, err := parseUser(role, hash)
		if err != nil {
			return nil, fmt.Errorf("line %d %w", n, err)
		}
		u.byName[name] = one
		u.list = append(u.list, one)
	}
	if len(u.list) == 0 {
		return nil, errors.New("it names no user: add one with coe-bridge passwd")
	}
	return u, nil
}

func parseUser(role, hash string) (*user, error) {
	r, err := ParseRole(role)
	if err != nil {
		return nil, errors.New("has no role: want reader or writer between user and hash")
	}
	h, err := parseHash(hash)
	if err != nil {
		return nil, err
	}
	return &user{role: r, hash: h}, nil
}

// textLines are the lines that say something, by their number.
func textLines(content []byte) iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		n := 0
		for line := range strings.Lines(string(content)) {
			n++
			line = strings.TrimSpace(line)
			if line != "" && line[0] != '#' && !yield(n, line) {
				return
			}
		}
	}
}
