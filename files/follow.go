// Package files follows files by their content, so that a certificate, a key or a list of
// users is renewed without a restart, and makes the TLS of clients from them. It warns before
// certificates expire.
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
	// interval is the time between two looks at the files. A change is loaded when it is
	// found the same twice, so that a file that is being written is complete, and a key
	// that comes a moment after its certificate is there.
	interval = 500 * time.Millisecond
	maxFile  = 16 << 20
)

// Set is files that are loaded together.
type Set struct {
	// Flag names the files to people, without dashes.
	Flag  string
	Paths []string
	// Load takes the contents, in the order of Paths. If it fails, it must have changed
	// nothing.
	Load func(contents [][]byte) error
	// Validity returns from when until when the certificates in contents that Load took
	// are valid. Nil if there are none.
	Validity func(contents [][]byte) (from, until time.Time)
}

// Follower loads files again when their content changes. It makes no difference whether a
// file is written in place, replaced, or reached by a symbolic link that is changed. Make it
// with New, then Run it. It is a prometheus.Collector.
type Follower struct {
	// Every is the time between two looks. Default 500 ms.
	Every time.Duration

	log *slog.Logger
	describe

	mu   sync.Mutex
	sets []*set
}

// set is a Set and what is known of it.
type set struct {
	Set
	// The contents that are in force, that were loaded last with or without success, and
	// that were found by the last look.
	inForce, judged, seen state
	loadedAt              time.Time
	failures              int
	current               bool // what the files say is in force
	from, until           time.Time
	reminded              reminder
}

// state is a digest of contents, or of the error that there was instead.
type state [sha256.Size]byte

// New returns a Follower. prefix begins the names of its metrics.
func New(prefix string, log *slog.Logger) *Follower {
	return &Follower{Every: interval, log: log, describe: newDescribe(prefix)}
}

// Follow loads the files of a set, now and whenever their content changes. It fails if they
// cannot be loaded now. Later, files that cannot be loaded leave in force what they said
// before.
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

// Run looks at the files until ctx is done.
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

// Look loads what has changed, and reminds of certificates that must be renewed.
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
	if now == s.inForce { // the content from before is back
		s.loaded(now, contents)
		return
	}
	if err == nil {
		err = s.Load(contents)
	}
	if err != nil {
		s.failures++
		s.current = false
		f.log.Error("file can't be read again, what it said before stays in force", "flag", "--"+s.Flag, "err", err)
		return
	}
	s.loaded(now, contents)
	f.log.Info("file has changed and is in force", "flag", "--"+s.Flag, "paths", s.Paths)
}

// loaded notes that contents are in force.
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

// readFile reads a regular file. Nothing else can be read again and again.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file: it is read again when it changes", path)
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
