package access

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/crypto/argon2"
	"golang.org/x/crypto/bcrypt"
)

// The algorithms of passwords' hashes.
const (
	Bcrypt   = "bcrypt"
	Argon2id = "argon2id"
)

// The cost of new hashes, and the largest cost in a file: a hash is computed
// for whoever asks.
const (
	bcryptCost    = 10
	maxBcryptCost = 16
	maxBcryptLen  = 72 // bytes of a password that count

	argonMemory, argonTime, argonThreads = 19 << 10, 2, 1 // KiB, passes
	argonSalt, argonKey                  = 16, 32         // bytes
	maxArgonMemory                       = 256 << 10
	maxArgonTime                         = 32
	maxArgonBytes                        = 128 // of salt and of key
)

// argonPrefix is the algorithm and the one version of it that there is.
const argonPrefix = "$argon2id$v=19$"

// HashPassword is what a line of the users file has of a password.
func HashPassword(password, algorithm string) (string, error) {
	if password == "" {
		return "", errors.New("hash the password: it is empty")
	}
	switch algorithm {
	case Bcrypt:
		hash, err := bcrypt.GenerateFromPassword([]byte(password), bcryptCost)
		if err != nil {
			return "", fmt.Errorf("hash the password: %w", err)
		}
		// The name that htpasswd gives the same algorithm.
		return strings.Replace(string(hash), "$2a$", "$2y$", 1), nil
	case Argon2id:
		a := argon{memory: argonMemory, time: argonTime, threads: argonThreads, salt: make([]byte, argonSalt)}
		rand.Read(a.salt) // never fails
		a.key = a.derive(password, argonKey)
		return a.String(), nil
	}
	return "", fmt.Errorf("hash %q: want %s or %s", algorithm, Bcrypt, Argon2id)
}

// hash is what is kept of a password.
type hash interface {
	matches(password string) bool
}

// parseHash reads what HashPassword writes, and what htpasswd -B and the argon2
// command do.
func parseHash(text string) (hash, error) {
	if strings.HasPrefix(text, "$argon2id$") {
		return parseArgon(text)
	}
	cost, err := bcrypt.Cost([]byte(text))
	switch {
	case err != nil:
		return nil, errors.New("has no bcrypt or argon2id hash: make it with coe-bridge passwd")
	case cost > maxBcryptCost:
		return nil, fmt.Errorf("has a bcrypt hash of cost %d: want %d at most", cost, maxBcryptCost)
	}
	return bcryptHash(text), nil
}

type bcryptHash []byte

func (h bcryptHash) matches(password string) bool {
	return bcrypt.CompareHashAndPassword(h, []byte(password)) == nil && len(password) <= maxBcryptLen
}

// argon is an argon2id hash (RFC 9106).
type argon struct {
	memory, time uint32
	threads      uint8
	salt, key    []byte
}

func (a argon) derive(password string, size int) []byte {
	return argon2.IDKey([]byte(password), a.salt, a.time, a.memory, a.threads, uint32(size))
}

func (a argon) matches(password string) bool {
	return subtle.ConstantTimeCompare(a.derive(password, len(a.key)), a.key) == 1
}

// String is the hash in the form that the reference implementation gives it.
func (a argon) String() string {
	encode := base64.RawStdEncoding.EncodeToString
	return fmt.Sprintf("%sm=%d,t=%d,p=%d$%s$%s", argonPrefix, a.memory, a.time, a.threads, encode(a.salt), encode(a.key))
}

func parseArgon(text string) (hash, error) {
	malformed := fmt.Errorf("has an argon2id hash that is not %sm=…,t=…,p=…$salt$hash: make it with coe-bridge passwd", argonPrefix)
	rest, ok := strings.CutPrefix(text, argonPrefix)
	parts := strings.Split(rest, "$")
	if !ok || len(parts) != 3 {
		return nil, malformed
	}
	var a argon
	if _, err := fmt.Sscanf(parts[0]+"$", "m=%d,t=%d,p=%d$", &a.memory, &a.time, &a.threads); err != nil {
		return nil, malformed
	}
	var saltErr, keyErr error
	a.salt, saltErr = base64.RawStdEncoding.DecodeString(parts[1])
	a.key, keyErr = base64.RawStdEncoding.DecodeString(parts[2])
	switch {
	case saltErr != nil, keyErr != nil, len(a.salt) < 8, len(a.key) < argonKey/2, len(a.salt) > maxArgonBytes, len(a.key) > maxArgonBytes:
		return nil, malformed
	case a.time == 0, a.threads == 0, a.memory < 8*uint32(a.threads):
		return nil, malformed
	case a.memory > maxArgonMemory, a.time > maxArgonTime:
		return nil, fmt.Errorf("has an argon2id hash of m=%d, t=%d: want m=%d KiB and t=%d at most", a.memory, a.time, maxArgonMemory, maxArgonTime)
	}
	return a, nil
}
