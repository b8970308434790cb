// Package files loads files again when their content changes, so that certificates, keys and
// lists of users are renewed without a restart. It creates the TLS configuration of clients
// from files, and warns before certificates expire.
//
// It does not know what the files are for.
package files

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"
)

const (
	// interval is the time between two checks of the files. A change is loaded when two checks
	// find the same content, so that a file is complete, and a key is not loaded without its
	// certificate.
	interval = 500 * time.Millisecond
	maxFile  = 16 << 20
)

// Set is a set of files that are loaded together.
type Set struct {
	// Flag names the files in messages, without dashes.
	Flag  string
	Paths []string
	// Load receives the contents, in the order of Paths. If it fails, it must not have changed
	// anything.
	Load func(contents [][]byte) error
	// Validity returns the validity period of the certificates in loaded contents. Nil if
	// there are no certificates.
	Validity func(contents [][]byte) (from, until time.Time)
}

// Follower loads files again when their content changes: written in place, replaced, or through
// a symbolic link. Create it with New, then call Run. It is a prometheus.Collector. Its methods
// may be called concurrently.
type Follower struct {
	// Every is the time between two checks. Default 500 ms.
	Every time.Duration

	log *slog.Logger
	describe

	mu   sync.Mutex
	sets []*set
}

// set is a Set with its state.
type set struct {
	Set
	// The contents that are in use, that Load received last, and that the last check found.
	inForce, judged, seen state
	loadedAt              time.Time
	failures              int
	current               bool // the content of the files is in use
	from, until           time.Time
	reminded              reminder
}

// state is a digest of contents, or of the error of reading them.
type state [sha256.Size]byte

// New returns a Follower. prefix is the prefix of its metrics.
func New(prefix string, log *slog.Logger) *Follower {
	return &Follower{Every: interval, log: log, describe: newDescribe(prefix)}
}

// Follow loads the files of a set, now and after each change. It fails if they cannot be loaded
// now. If they cannot be loaded later, the former content stays in use.
func (f *Follower) Follow(s Set) error {
	one := &set{Set: s}
	contents, now, err := one.read()
	if err == nil {
		err = s.Load(contents)
	}
	if err != nil {
		return fmt.Errorf("read --%s: %w", s.Flag, err)
	}
	one.judged, one.seen = now, now
	one.loaded(now, contents)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sets = append(f.sets, one)
	return nil
}

// Run checks the files until ctx is done.
func (f *Follower) Run(ctx context.Context) {
	ticker := time.NewTicker(f.Every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			f.Look()
		}
	}
}

// Look checks the files once: it loads changes, and logs certificates that must be renewed.
func (f *Follower) Look() {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	for _, one := range f.sets {
		f.look(one)
		f.remind(one, now)
	}
}

func (f *Follower) look(s *set) {
	contents, now, err := s.read()
	settled := now == s.seen
	s.seen = now
	if !settled || now == s.judged {
		return
	}
	s.judged = now
	if now == s.inForce { // the former content is back
		s.loaded(now, contents)
		return
	}
	if err == nil {
		err = s.Load(contents)
	}
	if err != nil {
		s.failures++
		s.current = false
		f.log.Error("cannot load the changed file; its former content stays in use", "flag", "--"+s.Flag, "err", err)
		return
	}
	s.loaded(now, contents)
	f.log.Info("loaded the changed file", "flag", "--"+s.Flag, "paths", s.Paths)
}

// loaded records that contents are in use.
func (s *set) loaded(now state, contents [][]byte) {
	s.inForce, s.current, s.loadedAt = now, true, time.Now()
	if s.Validity != nil {
		s.from, s.until = s.Validity(contents)
	}
}

func (s *set) read() (contents [][]byte, now state, err error) {
	digest := sha256.New()
	for _, path := range s.Paths {
		content, err := readFile(path)
		if err != nil {
			return nil, sha256.Sum256([]byte(err.Error())), err
		}
		contents = append(contents, content)
		one := sha256.Sum256(content)
		digest.Write(one[:])
	}
	return contents, state(digest.Sum(nil)), nil
}

// readFile reads a regular file. Other files cannot be read repeatedly.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file, so it cannot be read again after a change", path)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err == nil && len(content) > maxFile {
		err = fmt.Errorf("%s is larger than %d bytes", path, maxFile)
	}
	return content, errors.Join(err, file.Close())
}
