package access

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"
)

const (
	// followEvery is how often files are looked at. What has changed is taken up
	// when it is found the same twice: so a file that is being written, and a key that
	// comes a moment after its certificate, are waited for.
	followEvery = 500 * time.Millisecond
	maxFile     = 16 << 20
)

// files are followed by content: so it is nothing to them whether a file is written
// in place, replaced, or reached by a symbolic link that turns elsewhere.
type files struct {
	log     *slog.Logger
	metrics *metrics
	every   time.Duration
	sets    []*fileSet
}

// fileSet is what is taken up together.
type fileSet struct {
	name  string // the flag's, without dashes
	paths []string
	load  func(contents [][]byte) error

	inForce, judged, seen state
}

// state is a digest of contents, or of why there are none.
type state [sha256.Size]byte

// follow has load take up what is in files now, and again whenever that changes. A
// load that fails has changed nothing.
func (f *files) follow(name string, load func(contents [][]byte) error, paths ...string) error {
	set := &fileSet{name: name, paths: paths, load: load}
	contents, now, err := set.read()
	if err == nil {
		err = load(contents)
	}
	if err != nil {
		return fmt.Errorf("read --%s: %w", name, err)
	}
	set.inForce, set.judged, set.seen = now, now, now
	f.sets = append(f.sets, set)
	f.metrics.loaded(name)
	return nil
}

// look takes up what has changed.
func (f *files) look() {
	for _, set := range f.sets {
		contents, now, err := set.read()
		settled := now == set.seen
		set.seen = now
		if !settled || now == set.judged {
			continue
		}
		set.judged = now
		if now == set.inForce { // what was broken is as it was before
			f.metrics.loaded(set.name)
			continue
		}
		if err == nil {
			err = set.load(contents)
		}
		if err != nil {
			f.metrics.failed(set.name)
			f.log.Error("file can't be read again, what it said before stays in force", "flag", "--"+set.name, "err", err)
			continue
		}
		set.inForce = now
		f.metrics.loaded(set.name)
		f.log.Info("file has changed and is in force", "flag", "--"+set.name, "paths", set.paths)
	}
}

func (s *fileSet) read() (contents [][]byte, now state, err error) {
	digest := sha256.New()
	for _, path := range s.paths {
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

// readFile reads a file that is one: what is read again and again can't be a pipe.
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
