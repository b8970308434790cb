package restconf

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/bcrypt"
)

// Authenticator tells whether a password is a user's.
type Authenticator interface {
	Verify(ctx context.Context, user, password string) bool
}

// The cost of a bcrypt hash, and how often the file is looked at.
const (
	bcryptCost = 10
	checkEvery = time.Second
)

// HashPassword is the bcrypt hash that a line of a password file has after
// "user:".
func HashPassword(password string) (string, error) {
	if password == "" {
		return "", errors.New("hash the password: it is empty")
	}
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcryptCost)
	if err != nil {
		return "", fmt.Errorf("hash the password: %w", err)
	}
	// The name that htpasswd gives the same algorithm.
	return strings.Replace(string(hash), "$2a$", "$2y$", 1), nil
}

// Passwords authenticates against a file of lines "user:$2y$…", as htpasswd -B
// writes them, and follows its changes.
type Passwords struct {
	path string
	log  *slog.Logger
	// slots bound how many passwords are hashed at once: guessing is not to take
	// the processors from those whose credentials are known.
	slots  chan struct{}
	secret []byte

	mu      sync.Mutex
	looked  time.Time
	seen    os.FileInfo
	users   map[string][]byte
	nobody  []byte              // what an unknown user's password is compared with
	granted map[string]struct{} // fingerprints of what was verified with this file
}

var _ Authenticator = (*Passwords)(nil)

// OpenPasswords reads a password file.
func OpenPasswords(path string, log *slog.Logger) (*Passwords, error) {
	p := &Passwords{path: path, log: log, slots: make(chan struct{}, 2), secret: make([]byte, sha256.Size)}
	if _, err := rand.Read(p.secret); err != nil {
		return nil, fmt.Errorf("make a secret: %w", err)
	}
	if err := p.load(); err != nil {
		return nil, err
	}
	return p, nil
}

// Verify implements Authenticator. What was verified once is known by a keyed
// fingerprint until the file changes; so only the first request of a client pays
// for bcrypt. A wrong user costs the same time as a wrong password.
func (p *Passwords) Verify(ctx context.Context, user, password string) bool {
	mark := p.fingerprint(user, password)
	if _, _, granted := p.look(user, mark); granted {
		return true
	}
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-ctx.Done():
		return false
	}
	hash, known, granted := p.look(user, mark)
	if granted { // while waiting for the slot
		return true
	}
	if bcrypt.CompareHashAndPassword(hash, []byte(password)) != nil || !known {
		return false
	}
	p.grant(user, hash, mark)
	return true
}

func (p *Passwords) fingerprint(user, password string) string {
	mac := hmac.New(sha256.New, p.secret)
	fmt.Fprintf(mac, "%d:%s%s", len(user), user, password)
	return string(mac.Sum(nil))
}

// look is what is known of a user now.
func (p *Passwords) look(user, mark string) (hash []byte, known, granted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refresh()
	if hash, known = p.users[user]; !known {
		hash = p.nobody
	}
	_, granted = p.granted[mark]
	return hash, known, granted
}

// grant remembers a fingerprint, unless the file changed meanwhile.
func (p *Passwords) grant(user string, hash []byte, mark string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if string(p.users[user]) == string(hash) {
		p.granted[mark] = struct{}{}
	}
}

// refresh reads the file again where it has changed. A file that can't be read
// leaves the users as they were.
func (p *Passwords) refresh() {
	if time.Since(p.looked) < checkEvery {
		return
	}
	p.looked = time.Now()
	info, err := os.Stat(p.path)
	if err == nil && os.SameFile(info, p.seen) && info.ModTime().Equal(p.seen.ModTime()) && info.Size() == p.seen.Size() {
		return
	}
	if err == nil {
		err = p.load()
	}
	if err != nil {
		p.log.Error("password file can't be read again, the old one stays in force", "path", p.path, "err", err)
	}
}

func (p *Passwords) load() error {
	info, err := os.Stat(p.path)
	if err != nil {
		return fmt.Errorf("read the password file: %w", err)
	}
	content, err := os.ReadFile(p.path)
	if err != nil {
		return fmt.Errorf("read the password file: %w", err)
	}
	users, err := parsePasswords(string(content))
	if err != nil {
		return fmt.Errorf("read the password file %s: %w", p.path, err)
	}
	if p.nobody, err = bcrypt.GenerateFromPassword(p.secret, highestCost(users)); err != nil {
		return fmt.Errorf("make a secret: %w", err)
	}
	p.users, p.seen, p.looked, p.granted = users, info, time.Now(), map[string]struct{}{}
	return nil
}

// highestCost is what comparing takes for the best kept of the users.
func highestCost(users map[string][]byte) int {
	highest := bcrypt.MinCost
	for _, hash := range users {
		if cost, err := bcrypt.Cost(hash); err == nil {
			highest = max(highest, cost)
		}
	}
	return highest
}

func parsePasswords(content string) (map[string][]byte, error) {
	users := map[string][]byte{}
	n := 0
	for line := range strings.Lines(content) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		user, hash, ok := strings.Cut(line, ":")
		if !ok || user == "" {
			return nil, fmt.Errorf("line %d is not \"user:hash\"", n)
		}
		if _, err := bcrypt.Cost([]byte(hash)); err != nil {
			return nil, fmt.Errorf("line %d has no bcrypt hash: make it with coe-bridge passwd", n)
		}
		users[user] = []byte(hash)
	}
	if len(users) == 0 {
		return nil, errors.New("it names no user: add one with coe-bridge passwd")
	}
	return users, nil
}

// FixedUsers are users and their passwords in clear, for development alone.
type FixedUsers map[string]string

// Verify implements Authenticator, in a time that does not depend on where the
// password differs.
func (f FixedUsers) Verify(_ context.Context, user, password string) bool {
	want, known := f[user]
	a, b := sha256.Sum256([]byte(want)), sha256.Sum256([]byte(password))
	return hmac.Equal(a[:], b[:]) && known
}
