// Package durable writes files atomically and durably: after a crash or a power cut, a file
// has its old content or its new content.
package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// tempPrefix starts the names of unfinished files. Container runtimes and readers of
// directories skip names that start with a dot.
const tempPrefix = ".coe-next-"

// Write replaces the file at path with content. Content and name are durable when Write
// returns nil.
func Write(path string, content []byte, mode os.FileMode) error {
	if err := write(path, content, mode); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

func write(path string, content []byte, mode os.FileMode) error {
	dir := filepath.Dir(path)
	file, err := os.CreateTemp(dir, tempPrefix)
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(file.Name()) }() // it is gone after the rename
	_, err = file.Write(content)
	if err = errors.Join(err, file.Chmod(mode), file.Sync(), file.Close()); err != nil {
		return err
	}
	if err := os.Rename(file.Name(), path); err != nil {
		return err
	}
	return syncDir(dir)
}

// syncDir makes the names in a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// IsTemp reports whether name is the name of an unfinished file.
func IsTemp(name string) bool { return strings.HasPrefix(name, tempPrefix) }

// Clean removes the files that an interrupted Write left in dir.
func Clean(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove unfinished files: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if IsTemp(e.Name()) {
			errs = append(errs, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	return errors.Join(errs...)
}
